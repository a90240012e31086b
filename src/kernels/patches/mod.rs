//! Windows over images and channels that are neither convolutions nor pooling: patches, grayscale
//! dilation, local response normalization. Gradients gather, without atomics.

pub mod dilation;
pub mod dilation_grad;
pub mod extract;
pub mod lrn;

use super::registry::Registry;
use crate::shader::Shader;

/// Adds the family's ops.
pub fn register(r: &mut Registry) {
    extract::register(r);
    dilation::register(r);
    dilation_grad::register(r);
    lrn::register(r);
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    [extract::shaders(), dilation::shaders(), dilation_grad::shaders(), lrn::shaders()].concat()
}
