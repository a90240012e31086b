//! Programs of batch normalization: sums for each channel, the values that follow from them, and
//! the elementwise ends.

mod vec4s;

use smallvec::{SmallVec, smallvec};

use super::TYPES;
use crate::device::{Binding, Device, Grid, Key, Params, Profile, Program};
use crate::dtype::DType::{self, *};
use crate::error::Result;
use crate::kernels::bias::{element_windows, phase};
use crate::kernels::op::OpContext;
use crate::kernels::reduce::plan::MAX_RUN;
use crate::kernels::reduce::program::{part, window_bytes};
use crate::shader::{Field, Shader, WORKGROUP};
use crate::tensor::Tensor;

/// The shortest run of an invocation that is worth cutting each channel into one more sum.
const SHORTEST: usize = 16;

/// A tensor as `[images, channels, inner]`.
#[derive(Debug, Clone, Copy)]
pub struct Channels {
    /// Product of the extents before the channels.
    pub images: usize,
    /// Number of channels.
    pub channels: usize,
    /// Product of the extents behind the channels.
    pub inner: usize,
    /// The profile by which work is cut.
    pub profile: Profile,
}

/// Operands of the gradient.
pub struct Gradient<'a> {
    pub dy: &'a Tensor,
    pub x: &'a Tensor,
    pub scale: &'a Tensor,
    pub mean: &'a Tensor,
    pub variance: &'a Tensor,
    pub scale_backprop: &'a Tensor,
    pub offset_backprop: &'a Tensor,
    /// Scratch for four values of each channel.
    pub coefficients: &'a Tensor,
    pub epsilon: f32,
    pub is_training: bool,
}

/// The quantities that the two sums of a channel are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Moments,
    Gradient,
}

impl Mode {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Moments => "moments",
            Self::Gradient => "gradient",
        }
    }

    fn sums_shader(self, dtype: DType) -> Shader {
        let shader =
            Shader::new(format!("batch norm, sums for {}, {dtype}", self.name())).bind("x", dtype);
        let shader = match self {
            // The first image holds each channel's first element.
            Self::Moments => shader.bind("head", dtype),
            Self::Gradient => shader.bind("dy", dtype).bind("mean", F32),
        };
        let (center, terms) = match self {
            Self::Moments => ("load_head(c * p.inner)", "return vec2<f32>(d, d * d);"),
            Self::Gradient => {
                ("load_mean(c)", "let g = load_dy(e);\n    return vec2<f32>(g, g * d);")
            }
        };
        shader
            .bind("sums", F32)
            .u32s(&[
                "count",
                "images",
                "channels",
                "inner",
                "segments",
                "first_segment",
                "all_segments",
            ])
            .library("quotient")
            .define("CENTER", center)
            .define("TERMS", terms)
            .body(include_str!("../../../../shaders/norm_sums.wgsl"))
    }

    fn finish_shader(self, dtype: DType, lanes: u32) -> Shader {
        let shader =
            Shader::new(format!("batch norm, {}, {lanes} lanes", self.name())).bind("sums", F32);
        let (shader, finish) = match self {
            Self::Moments => (
                shader.bind("head", dtype).bind("mean", F32).bind("variance", F32),
                "let distance = sums.x / total;\n    store_mean(c, load_head(c * p.inner) + \
                 distance);\n    store_variance(c, max(sums.y / total - distance * distance, \
                 0.0));",
            ),
            Self::Gradient => (
                shader
                    .bind("mean", F32)
                    .bind("variance", F32)
                    .bind("scale", F32)
                    .bind("scale_backprop", F32)
                    .bind("offset_backprop", F32)
                    .bind("coefficients", F32),
                "let inverse = inverseSqrt(load_variance(c) + p.epsilon);\n    let a = \
                 load_scale(c) * inverse;\n    store_scale_backprop(c, sums.y * inverse);\n    \
                 store_offset_backprop(c, sums.x);\n    // Statistics that were given do not \
                 depend on x.\n    let share = select(0.0, a / total, p.is_training == 1u);\n    \
                 store_coefficients(c, a);\n    store_coefficients(p.channels + c, share * \
                 inverse * inverse * sums.y);\n    store_coefficients(2u * p.channels + c, share \
                 * sums.x);\n    store_coefficients(3u * p.channels + c, load_mean(c));",
            ),
        };
        let shader = shader.u32s(&["channels", "inner", "segments", "total"]);
        let shader = match self {
            Self::Moments => shader,
            Self::Gradient => shader.param("is_training", Field::U32).param("epsilon", Field::F32),
        };
        shader
            .define("LANES", lanes.to_string())
            .define("FINISH", finish)
            .body(include_str!("../../../../shaders/norm_finish.wgsl"))
    }
}

fn forward_shader(dtype: DType) -> Shader {
    Shader::new(format!("batch norm forward {dtype}"))
        .bind("x", dtype)
        .bind("mean", F32)
        .bind("variance", F32)
        .bind("scale", F32)
        .bind("offset", F32)
        .bind("y", dtype)
        .u32s(&["count", "inner", "channels", "phase", "rest"])
        .param("epsilon", Field::F32)
        .library("quotient")
        .body(include_str!("../../../../shaders/norm_forward.wgsl"))
        .map("y")
}

fn backward_shader(dtype: DType) -> Shader {
    Shader::new(format!("batch norm backward {dtype}"))
        .bind("dy", dtype)
        .bind("x", dtype)
        .bind("coefficients", F32)
        .bind("dx", dtype)
        .u32s(&["count", "inner", "channels", "phase", "rest"])
        .library("quotient")
        .body(include_str!("../../../../shaders/norm_backward.wgsl"))
        .map("dx")
}

fn blend_shader() -> Shader {
    Shader::new("batch norm, running statistics")
        .bind("old", F32)
        .bind("new_value", F32)
        .bind("y", F32)
        .u32s(&["count"])
        .param("keep", Field::F32)
        .param("take", Field::F32)
        .body(include_str!("../../../../shaders/norm_blend.wgsl"))
        .map("y")
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let mut out = vec4s::shaders();
    out.push(blend_shader());
    for &dtype in TYPES {
        out.extend([forward_shader(dtype), backward_shader(dtype)]);
        for mode in [Mode::Moments, Mode::Gradient] {
            out.push(mode.sums_shader(dtype));
            out.extend([1, 64].map(|lanes| mode.finish_shader(dtype, lanes)));
        }
    }
    out
}

/// `y = keep * old + take * new`.
pub fn blend(
    device: &Device,
    keep: f32,
    old: &Tensor,
    take: f32,
    new: &Tensor,
    y: &Tensor,
) -> Result<()> {
    device.enqueue_counted(
        &Program {
            key: Key::new("norm_blend"),
            shader: &blend_shader,
            bindings: smallvec![old.into(), new.into(), y.into()],
            params: Params::new().u32(y.len()).f32(keep).f32(take),
            grid: Grid::map(y.len(), F32),
        },
        F32.flops(3 * y.len()),
    )
}

impl Channels {
    /// Elements in a channel.
    pub const fn total(&self) -> usize {
        self.images * self.inner
    }

    /// Mean and variance of each channel.
    pub fn moments(
        &self,
        ctx: &mut dyn OpContext,
        x: &Tensor,
        mean: &Tensor,
        variance: &Tensor,
    ) -> Result<()> {
        let head = part(x, 0, self.channels * self.inner);
        let vec4s = vec4s::fits(self, &[x]);
        let first = if vec4s { vec4s::vec4_part(x, 0, self.channels) } else { head };
        let (sums, segments) = self.sums(ctx, Mode::Moments, x, vec4s, &|_, _| smallvec![first])?;
        self.finish(
            ctx.device(),
            Mode::Moments,
            x.dtype,
            segments,
            &sums,
            smallvec![head, mean.into(), variance.into()],
            &|p| p,
        )
    }

    /// `y` from `x` and the statistics.
    #[expect(clippy::too_many_arguments, reason = "the op's own operands")]
    pub fn normalize(
        &self,
        device: &Device,
        x: &Tensor,
        mean: &Tensor,
        variance: &Tensor,
        scale: &Tensor,
        offset: &Tensor,
        epsilon: f32,
        y: &Tensor,
    ) -> Result<()> {
        if vec4s::fits(self, &[x, mean, variance, scale, offset, y]) {
            return vec4s::FORWARD.enqueue(
                device,
                self,
                &[x],
                &[mean, variance, scale, offset],
                y,
                epsilon,
            );
        }
        element_windows(device, y.len(), y.dtype.size(), |first, count| {
            device.enqueue_counted(
                &Program {
                    key: Key::new("norm_forward").dtype(x.dtype),
                    shader: &|| forward_shader(x.dtype),
                    bindings: smallvec![
                        part(x, first, count),
                        mean.into(),
                        variance.into(),
                        scale.into(),
                        offset.into(),
                        part(y, first, count),
                    ],
                    params: self.elementwise(first, count).f32(epsilon),
                    grid: Grid::map(count, y.dtype),
                },
                F32.flops(3 * count),
            )
        })
    }

    /// The gradients of scale, offset and `x`.
    pub fn backward(&self, ctx: &mut dyn OpContext, g: &Gradient<'_>, dx: &Tensor) -> Result<()> {
        let vec4s = vec4s::fits(self, &[g.x, g.dy, g.mean]);
        let (sums, segments) = self.sums(ctx, Mode::Gradient, g.x, vec4s, &|first, count| {
            if vec4s {
                smallvec![
                    vec4s::vec4_part(g.dy, first, count),
                    vec4s::vec4_part(g.mean, 0, self.channels)
                ]
            } else {
                smallvec![part(g.dy, first, count), g.mean.into()]
            }
        })?;
        let rest = smallvec![
            g.mean.into(),
            g.variance.into(),
            g.scale.into(),
            g.scale_backprop.into(),
            g.offset_backprop.into(),
            g.coefficients.into(),
        ];
        let device = ctx.device();
        self.finish(device, Mode::Gradient, F32, segments, &sums, rest, &|p| {
            p.u32(u32::from(g.is_training)).f32(g.epsilon)
        })?;
        if vec4s::fits(self, &[g.dy, g.x, g.coefficients, dx]) {
            return vec4s::BACKWARD.enqueue(device, self, &[g.dy, g.x], &[g.coefficients], dx, 0.0);
        }
        element_windows(device, dx.len(), dx.dtype.size(), |first, count| {
            device.enqueue_counted(
                &Program {
                    key: Key::new("norm_backward").dtype(dx.dtype),
                    shader: &|| backward_shader(dx.dtype),
                    bindings: smallvec![
                        part(g.dy, first, count),
                        part(g.x, first, count),
                        g.coefficients.into(),
                        part(dx, first, count),
                    ],
                    params: self.elementwise(first, count),
                    grid: Grid::map(count, dx.dtype),
                },
                F32.flops(5 * count),
            )
        })
    }

    fn elementwise(&self, first: usize, count: usize) -> Params {
        let (phase, rest) = phase(first, self.inner, self.channels);
        Params::new().u32(count).u32(self.inner).u32(self.channels).u32(phase).u32(rest)
    }

    /// Enqueues the two sums of each channel and segment, over windows of images where `x` exceeds
    /// a binding. `others` gives the tensors that are bound beside a window's elements of `x`;
    /// `vec4s` tells that all of them are taken four channels at once. Returns the sums and the
    /// number of segments.
    fn sums(
        &self,
        ctx: &mut dyn OpContext,
        mode: Mode,
        x: &Tensor,
        vec4s: bool,
        others: &dyn Fn(usize, usize) -> SmallVec<[Binding; 8]>,
    ) -> Result<(Tensor, usize)> {
        let Self { images, channels, inner, profile } = *self;
        let image = channels * inner;
        let fits = (window_bytes(ctx.device()) as usize / (image * x.dtype.size())).max(1);
        let per_window = images.min(fits);
        let windows = images.div_ceil(per_window);
        let run = per_window * inner;
        let lines = if vec4s { channels / 4 } else { channels };
        let wanted = (profile.invocations / lines).min(run / SHORTEST);
        let segments = wanted.max(run.div_ceil(MAX_RUN)).max(1);
        let all_segments = segments * windows;
        let sums = ctx.temp(F32, &[2, all_segments, channels])?;
        let device = ctx.device();
        device.check_extent(self.total())?;
        for w in 0..windows {
            let first = w * per_window;
            let count = per_window.min(images - first);
            device.check_extent(count * image)?;
            let of_x = if vec4s { vec4s::vec4_part } else { part }(x, first * image, count * image);
            let mut bindings: SmallVec<[Binding; 8]> = smallvec![of_x];
            bindings.extend(others(first * image, count * image));
            bindings.push(if vec4s {
                vec4s::vec4_part(&sums, 0, sums.len())
            } else {
                (&sums).into()
            });
            let mut params = Params::new().u32(segments * lines).u32(count).u32(lines);
            if !vec4s {
                params = params.u32(inner);
            }
            device.enqueue_counted(
                &Program {
                    key: Key::new("norm_sums")
                        .name(mode.name())
                        .dtype(x.dtype)
                        .number(u32::from(vec4s)),
                    shader: &|| {
                        if vec4s {
                            vec4s::sums_shader(mode, x.dtype)
                        } else {
                            mode.sums_shader(x.dtype)
                        }
                    },
                    bindings,
                    params: params.u32(segments).u32(w * segments).u32(all_segments),
                    grid: Grid::linear(segments * lines, WORKGROUP),
                },
                F32.flops(4 * count * image),
            )?;
        }
        Ok((sums, all_segments))
    }

    /// Enqueues the program that computes a channel's values from its sums. `params` adds the
    /// mode's own parameters.
    #[expect(clippy::too_many_arguments, reason = "one dispatch for both modes")]
    fn finish(
        &self,
        device: &Device,
        mode: Mode,
        dtype: DType,
        segments: usize,
        sums: &Tensor,
        others: SmallVec<[Binding; 8]>,
        params: &dyn Fn(Params) -> Params,
    ) -> Result<()> {
        let lanes = if segments < 32 { 1 } else { 64 };
        let mut bindings: SmallVec<[Binding; 8]> = smallvec![sums.into()];
        bindings.extend(others);
        device.enqueue(&Program {
            key: Key::new("norm_finish").name(mode.name()).dtype(dtype).number(lanes),
            shader: &|| mode.finish_shader(dtype, lanes),
            bindings,
            params: params(
                Params::new().u32(self.channels).u32(self.inner).u32(segments).u32(self.total()),
            ),
            grid: Grid::linear(self.channels * lanes as usize, WORKGROUP),
        })
    }
}
