//! Batch normalization of four channels at once: channels are the innermost dimension and a
//! multiple of four.

use super::super::TYPES;
use super::Channels;
use crate::device::{Binding, Device, Grid, Key, KeyPart, Profile, declare_program};
use crate::dtype::DType::{self, F32};
use crate::error::Result;
use crate::kernels::reduce::program::{part, window_bytes};
use crate::shader::{Access, List, Shader, WORKGROUP, vec4};
use crate::tensor::Tensor;

/// The most rows of an invocation.
const MOST_ROWS: usize = 8;

/// The distance from one row of `units` vec4s of an invocation to the next: an invocation has
/// several rows if that leaves enough invocations.
fn row_step(profile: Profile, rows: usize, units: usize) -> usize {
    rows.div_ceil((rows * units / profile.invocations).clamp(1, MOST_ROWS))
}

/// An elementwise program: its name, the tensors that it walks, the values of channels, the text
/// that it runs once, and its results.
pub(super) struct End {
    name: &'static str,
    walked: &'static [&'static str],
    vectors: &'static [&'static str],
    epsilon: bool,
    /// Operations for each element.
    operations: usize,
    channel: &'static str,
    write: &'static str,
}

/// `y` from `x`.
pub(super) static FORWARD: End = End {
    name: "forward",
    walked: &["x"],
    vectors: &["mean", "variance", "scale", "offset"],
    epsilon: true,
    operations: 3,
    channel: "let mean_value = read_mean(c);\n    let factor = inverseSqrt(read_variance(c) + \
              p.epsilon) * read_scale(c);\n    let shift = read_offset(c);",
    write: "write_result(i, (read_x(i) - mean_value) * factor + shift, 4u);",
};
/// The gradient of `x`.
pub(super) static BACKWARD: End = End {
    name: "backward",
    walked: &["dy", "x"],
    vectors: &["coefficients"],
    epsilon: false,
    operations: 5,
    channel: "let a = read_coefficients(c);\n    let b = read_coefficients(p.units + c);\n    let \
              share = read_coefficients(2u * p.units + c);\n    let mean_value = \
              read_coefficients(3u * p.units + c);",
    write: "write_result(i, a * read_dy(i) - b * (read_x(i) - mean_value) - share, 4u);",
};

impl KeyPart for &End {
    fn add_to(&self, key: Key) -> Key {
        key.name(self.name)
    }
}

declare_program! {
    /// An end of a batch normalization.
    struct EndProgram = "norm_vec4s"(end: &'static End, dtype: DType);
    lists {
        walked: List(end.walked.iter().map(|name| (*name, Access::ReadVec4s(dtype)))),
        vectors: List(end.vectors.iter().map(|name| (*name, Access::ReadVec4s(F32)))),
    }
    bindings { result: Access::WriteVec4s(dtype) }
    params {
        count: usize, units: usize, rows: usize, step: usize, epsilon: Option<f32> = end.epsilon,
    }
    shader format!("batch norm {} {dtype} vec4s", end.name) =>
        .define("CHANNEL", end.channel)
        .define("WRITE", end.write)
        .body(include_str!("../../../../shaders/norm_rows.wgsl"))
}

impl End {
    /// Enqueues the program, over windows of rows where a tensor exceeds a binding.
    pub(super) fn enqueue(
        &'static self,
        device: &Device,
        channels: &Channels,
        walked: &[(&'static str, &Tensor)],
        vectors: &[(&'static str, &Tensor)],
        result: &Tensor,
        epsilon: f32,
    ) -> Result<()> {
        let (dtype, units) = (result.dtype, channels.channels / 4);
        let most_rows = (window_bytes(device) as usize / (channels.channels * dtype.size())).max(1);
        for first in (0..channels.images).step_by(most_rows) {
            let rows = most_rows.min(channels.images - first);
            let step = row_step(channels.profile, rows, units);
            let window =
                |t: &Tensor| vec4_part(t, first * channels.channels, rows * channels.channels);
            let call = EndProgram {
                walked: walked.iter().map(|(name, t)| (*name, window(t))).collect(),
                vectors: vectors
                    .iter()
                    .map(|(name, t)| (*name, Binding::raw(t, vec4::unit(F32))))
                    .collect(),
                result: window(result),
                count: step * units,
                units,
                rows,
                step,
                epsilon: self.epsilon.then_some(epsilon),
            };
            let (of, grid) = (EndProgram::of(self, dtype), Grid::linear(step * units, WORKGROUP));
            let operations = F32.flops(self.operations * rows * channels.channels);
            device.enqueue_counted(&call.program(&of, grid), operations)?;
        }
        Ok(())
    }
}

/// Whether `tensors` can be taken four channels at once.
pub(super) fn fits(channels: &Channels, tensors: &[&Tensor]) -> bool {
    channels.inner == 1 && channels.channels.is_multiple_of(4) && vec4::aligned(tensors)
}

/// Elements of a tensor in units of four.
pub(super) fn vec4_part(t: &Tensor, first: usize, count: usize) -> Binding {
    Binding { unit: vec4::unit(t.dtype), ..part(t, first, count) }
}

/// Every variant.
pub(super) fn shaders() -> Vec<Shader> {
    let ends = [&FORWARD, &BACKWARD];
    TYPES.iter().flat_map(|&dtype| ends.map(|end| EndProgram::shader(end, dtype))).collect()
}
