//! Depthwise convolutions of four channels at once. Channels are the innermost dimension, are a
//! multiple of four, and have one filter each.

use super::Which;
use crate::device::Grid;
use crate::dtype::DType;
use crate::kernels::contract::geometry::Geometry;
use crate::shader::{Shader, WORKGROUP, vec4};
use crate::tensor::Tensor;

/// Whether there are vec4 programs for operands, or results, of a type.
pub(super) const fn supports(dtype: DType) -> bool {
    dtype.is_single()
}

/// Whether the vec4 program computes this. The operands are the program's.
pub(super) fn fits(which: Which, g: &Geometry, operands: [&Tensor; 3]) -> bool {
    let dilated = g.dilation[1] != 1 || g.dilation[2] != 1;
    g.channels_last
        && g.filters == g.channels
        && g.channels.is_multiple_of(4)
        && !(matches!(which, Which::Input) && dilated)
        && operands
            .iter()
            .all(|t| supports(t.dtype) && t.address.is_multiple_of(u64::from(unit(t.dtype))))
}

/// Bytes of four elements.
pub(super) const fn unit(dtype: DType) -> u32 {
    vec4::unit(dtype)
}

/// An invocation for each four elements of the result.
pub(super) fn grid(elements: usize) -> Grid {
    Grid::linear(elements / 4, WORKGROUP)
}

/// Declares the operands and the result.
pub(super) fn bind(
    shader: Shader,
    names: [&'static str; 2],
    dtype: DType,
    result: DType,
) -> Shader {
    let shader = names.iter().fold(shader, |shader, name| vec4::bind_read(shader, name, dtype));
    vec4::bind_write(shader, "result", result)
}

/// The program's text.
pub(super) const fn text(which: Which) -> &'static str {
    match which {
        Which::Forward => include_str!("../../../../shaders/conv/depthwise_forward_vec4s.wgsl"),
        Which::Input => include_str!("../../../../shaders/conv/depthwise_input_vec4s.wgsl"),
        Which::Filter => include_str!("../../../../shaders/conv/depthwise_filter_vec4s.wgsl"),
    }
}
