//! Images of shape [batch, height, width, channels]: resizing, crops, projective transforms,
//! colours, contrast and outlines of boxes.
//!
//! Gradients gather: each element of an image sums the gradients of the values that it contributed
//! to, in a fixed order, without atomics.

pub mod contrast;
pub mod crop;
pub mod crop_grad;
mod draw_boxes;
pub mod resize;
mod scale_translate;
mod spans;
pub mod transform;
pub mod triple;

use super::op::OpContext;
use super::registry::Registry;
use crate::device::Device;
use crate::dtype::DType::{self, *};
use crate::error::Result;
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Tensor, shape_text};

/// Adds the family's ops.
pub fn register(r: &mut Registry) {
    resize::register(r);
    scale_translate::register(r);
    crop::register(r);
    crop_grad::register(r);
    draw_boxes::register(r);
    transform::register(r);
    triple::register(r);
    contrast::register(r);
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    [
        resize::shaders(),
        scale_translate::shaders(),
        crop::shaders(),
        crop_grad::shaders(),
        draw_boxes::shaders(),
        transform::shaders(),
        triple::shaders(),
        contrast::shaders(),
    ]
    .concat()
}

/// Fails unless `x` is [batch, height, width, channels]. `expected` is the start of TensorFlow's
/// message.
fn check_image(x: &Tensor, expected: &str) -> Result<[usize; 4]> {
    require!(x.rank() == 4, "{expected}{}", shape_text(&x.dims));
    Ok([x.dims[0], x.dims[1], x.dims[2], x.dims[3]])
}

/// Fails if one of the tensors has more elements than shaders can count.
fn check_extents(device: &Device, tensors: &[&Tensor]) -> Result<()> {
    tensors.iter().try_for_each(|t| device.check_extent(t.len()).map(drop))
}

/// The two extents in host input `i`, as a signed pair. `name` is its name in TensorFlow's
/// messages.
fn host_pair(ctx: &mut dyn OpContext, i: usize, name: &str) -> Result<[i64; 2]> {
    let t = ctx.host_input(i)?;
    require!(t.dims.len() == 1, "{name} must be 1-dimensional{}", shape_text(&t.dims));
    require!(t.dims[0] == 2, "{name} must have two elements{}", shape_text(&t.dims));
    let v = t.to_i64()?;
    Ok([v[0], v[1]])
}

/// The type in which sums of `dtype` are kept.
const fn sum_type(dtype: DType) -> DType {
    if matches!(dtype, F64) { F64 } else { F32 }
}
