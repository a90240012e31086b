//! The texts of loops over windows: over whole windows, and over parts of them where whole windows
//! take more iterations than an adapter's loops may have.

use crate::kernels::iterations::PART;
use crate::shader::Shader;

/// The text for whole windows.
pub(super) const WHOLE: &str = include_str!("../../../../shaders/pool/whole.wgsl");
const CUT: &str = include_str!("../../../../shaders/pool/cut.wgsl");

/// Declares the text for parts of windows.
pub(super) fn declare(shader: Shader) -> Shader {
    shader.u32s(PART).body(CUT)
}
