//! Batch normalization of four channels at once: channels are the innermost dimension and a
//! multiple of four.

use smallvec::SmallVec;

use super::super::TYPES;
use super::{Channels, Mode};
use crate::device::{Binding, Device, Grid, Key, Params, Profile, Program};
use crate::dtype::DType::{self, F32};
use crate::error::Result;
use crate::kernels::reduce::program::{part, window_bytes};
use crate::shader::{Field, Shader, WORKGROUP, vec4};
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
pub(super) const FORWARD: End = End {
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
pub(super) const BACKWARD: End = End {
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

impl End {
    fn shader(&self, dtype: DType) -> Shader {
        let mut shader = Shader::new(format!("batch norm {} {dtype} vec4s", self.name));
        for name in self.walked {
            shader = vec4::bind_read(shader, name, dtype);
        }
        for name in self.vectors {
            shader = vec4::bind_read(shader, name, F32);
        }
        shader =
            vec4::bind_write(shader, "result", dtype).u32s(&["count", "units", "rows", "step"]);
        if self.epsilon {
            shader = shader.param("epsilon", Field::F32);
        }
        shader
            .library("quotient")
            .define("CHANNEL", self.channel)
            .define("WRITE", self.write)
            .body(include_str!("../../../../shaders/norm_rows.wgsl"))
    }

    /// Enqueues the program, over windows of rows where a tensor exceeds a binding.
    pub(super) fn enqueue(
        &'static self,
        device: &Device,
        channels: &Channels,
        walked: &[&Tensor],
        vectors: &[&Tensor],
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
            let mut bindings: SmallVec<[Binding; 8]> = walked.iter().map(|t| window(t)).collect();
            bindings.extend(vectors.iter().map(|t| Binding::raw(t, vec4::unit(F32))));
            bindings.push(window(result));
            let params = Params::new().u32(step * units).u32(units).u32(rows).u32(step);
            device.enqueue_counted(
                &Program {
                    key: Key::new("norm_vec4s").name(self.name).dtype(dtype),
                    shader: &|| self.shader(dtype),
                    bindings,
                    params: if self.epsilon { params.f32(epsilon) } else { params },
                    grid: Grid::linear(step * units, WORKGROUP),
                },
                F32.flops(self.operations * rows * channels.channels),
            )?;
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

/// The sums of [`Mode::sums_shader`].
pub(super) fn sums_shader(mode: Mode, dtype: DType) -> Shader {
    let shader = Shader::new(format!("batch norm, sums for {}, {dtype} vec4s", mode.name()));
    let shader = vec4::bind_read(shader, "x", dtype);
    let (shader, center, terms) = match mode {
        Mode::Moments => (
            vec4::bind_read(shader, "head", dtype),
            "read_head(c)",
            "block_first += d;\n            block_second += d * d;",
        ),
        Mode::Gradient => (
            vec4::bind_read(vec4::bind_read(shader, "dy", dtype), "mean", F32),
            "read_mean(c)",
            "let g = read_dy(e);\n            block_first += g;\n            block_second += g * \
             d;",
        ),
    };
    vec4::bind_write(shader, "sums", F32)
        .u32s(&["count", "images", "units", "segments", "first_segment", "all_segments"])
        .library("quotient")
        .define("CENTER", center)
        .define("TERMS", terms)
        .body(include_str!("../../../../shaders/norm_sums_vec4s.wgsl"))
}

/// Every variant.
pub(super) fn shaders() -> Vec<Shader> {
    TYPES
        .iter()
        .flat_map(|&dtype| {
            [
                FORWARD.shader(dtype),
                BACKWARD.shader(dtype),
                sums_shader(Mode::Moments, dtype),
                sums_shader(Mode::Gradient, dtype),
            ]
        })
        .collect()
}
