//! Programs of batch normalization: sums for each channel, the values that follow from them, and
//! the elementwise ends.

mod vec4s;

use std::sync::LazyLock;

use smallvec::{SmallVec, smallvec};

use super::TYPES;
use crate::device::{Binding, Device, Grid, Key, Params, Profile, Program};
use crate::dtype::DType::{self, *};
use crate::error::Result;
use crate::kernels::fused::elementwise::ElementwiseProgram;
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

/// `(x - mean) * scale / sqrt(variance + c0) + offset`; the inputs have this order.
static FORWARD: ByType = LazyLock::new(|| {
    by_type(&|t| {
        format!(
            "x: {t}, float32, float32, float32, float32; c: 1; s0 = Cast<{t}, float32>(x0); s1 = \
             Sub<float32>(s0, x1); s2 = AddV2<float32>(x2, c0); s3 = Rsqrt<float32>(s2); s4 = \
             Mul<float32>(s3, x3); s5 = Mul<float32>(s1, s4); s6 = AddV2<float32>(s5, x4); s7 = \
             Cast<float32, {t}>(s6); return s7"
        )
    })
});

/// `a * dy - b * (x - mean) - share`, from dy, x, a, b, share and mean.
static BACKWARD: ByType = LazyLock::new(|| {
    by_type(&|t| {
        format!(
            "x: {t}, {t}, float32, float32, float32, float32; c: 0; s0 = Cast<{t}, float32>(x0); \
             s1 = Cast<{t}, float32>(x1); s2 = Mul<float32>(x2, s0); s3 = Sub<float32>(s1, x5); \
             s4 = Mul<float32>(x3, s3); s5 = Sub<float32>(s2, s4); s6 = Sub<float32>(s5, x4); s7 \
             = Cast<float32, {t}>(s6); return s7"
        )
    })
});

/// `c0 * old + c1 * new`.
static BLEND: LazyLock<ElementwiseProgram> = LazyLock::new(|| {
    parse(
        "x: float32, float32; c: 2; s0 = Mul<float32>(x0, c0); s1 = Mul<float32>(x1, c1); s2 = \
         AddV2<float32>(s0, s1); return s2",
    )
});

/// `c0 * new`.
static SCALE: LazyLock<ElementwiseProgram> =
    LazyLock::new(|| parse("x: float32; c: 1; s0 = Mul<float32>(x0, c0); return s0"));

/// A program for each of [`TYPES`].
type ByType = LazyLock<Vec<ElementwiseProgram>>;

fn parse(text: &str) -> ElementwiseProgram {
    let program = text.parse().and_then(ElementwiseProgram::new);
    program.expect("the expressions of this file are valid")
}

fn by_type(text: &dyn Fn(DType) -> String) -> Vec<ElementwiseProgram> {
    TYPES.iter().map(|dtype| parse(&text(*dtype))).collect()
}

fn of_type(programs: &ByType, dtype: DType) -> &ElementwiseProgram {
    let at = TYPES.iter().position(|t| *t == dtype);
    &programs[at.expect("the ops are registered for these types")]
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let mut out = vec4s::shaders();
    let ends = FORWARD.iter().chain(BACKWARD.iter()).chain([&*BLEND, &*SCALE]);
    out.extend(ends.flat_map(ElementwiseProgram::shaders));
    for &dtype in TYPES {
        for mode in [Mode::Moments, Mode::Gradient] {
            out.push(mode.sums_shader(dtype));
            out.extend([1, 64].map(|lanes| mode.finish_shader(dtype, lanes)));
        }
    }
    out
}

/// `y = keep * old + take * new`. `old` is not read if `keep` is 0.
pub fn blend(
    device: &Device,
    keep: f32,
    old: &Tensor,
    take: f32,
    new: &Tensor,
    y: &Tensor,
) -> Result<()> {
    // The old values may be missing.
    if keep == 0.0 {
        return SCALE.run(device, std::slice::from_ref(new), std::slice::from_ref(y), &[take]);
    }
    BLEND.run(device, &[old.clone(), new.clone()], std::slice::from_ref(y), &[keep, take])
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
        let vectors = [mean, variance, scale, offset].map(|t| self.channel(t));
        let inputs = [&[self.image(x)][..], &vectors].concat();
        of_type(&FORWARD, x.dtype).run(device, &inputs, &[self.image(y)], &[epsilon])
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
        let row = |k: usize| {
            let address = g.coefficients.address + (k * self.channels * 4) as u64;
            self.channel(&Tensor::new(F32, &[self.channels], address))
        };
        let inputs = [self.image(g.dy), self.image(g.x), row(0), row(1), row(2), row(3)];
        of_type(&BACKWARD, dx.dtype).run(device, &inputs, &[self.image(dx)], &[])
    }

    /// `t` with the extents of the images, the channels, and the elements in a channel.
    fn image(&self, t: &Tensor) -> Tensor {
        t.reshaped(&[self.images, self.channels, self.inner])
    }

    /// The values of the channels, so that they broadcast.
    fn channel(&self, t: &Tensor) -> Tensor {
        t.reshaped(&[self.channels, 1])
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
