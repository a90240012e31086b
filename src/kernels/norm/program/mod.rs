//! Programs of batch normalization: sums for each channel, the values that follow from them, and
//! the elementwise ends.

mod vec4s;

use std::sync::LazyLock;

use super::TYPES;
use crate::device::{Device, Grid, Profile, declare_params, declare_program, enum_key_parts};
use crate::dtype::DType::{self, *};
use crate::error::Result;
use crate::kernels::fused::elementwise::ElementwiseProgram;
use crate::kernels::op::OpContext;
use crate::kernels::reduce::plan::MAX_RUN;
use crate::kernels::reduce::program::{part, window_bytes};
use crate::shader::{Access, Shader, WORKGROUP};
use crate::tensor::{Tensor, named};

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
}

enum_key_parts!(Mode);

declare_program! {
    /// Two sums for each channel and segment: of the elements and of their squares, as distances
    /// from the channel's first element in `head`, or of the gradients `dy` and their products with
    /// distances from `mean`. `lines` counts channels, or `vec4s` of them.
    struct Sums = "norm_sums"(mode: Mode, dtype: DType, vec4s: bool);
    bindings { x: Access::read(dtype, vec4s), sums: Access::write(F32, vec4s) }
    optional {
        head: (mode == Mode::Moments).then_some(Access::read(dtype, vec4s)),
        dy: (mode == Mode::Gradient).then_some(Access::read(dtype, vec4s)),
        mean: (mode == Mode::Gradient).then_some(Access::read(F32, vec4s)),
    }
    params {
        count: usize, images: usize, lines: usize, inner: Option<usize> = !vec4s, segments: usize,
        first_segment: usize, all_segments: usize,
    }
}

impl Sums {
    fn shader(mode: Mode, dtype: DType, vec4s: bool) -> Shader {
        let (center, terms) = match (mode, vec4s) {
            (Mode::Moments, false) => ("load_head(c * p.inner)", "return vec2<f32>(d, d * d);"),
            (Mode::Gradient, false) => {
                ("load_mean(c)", "let g = load_dy(e);\n    return vec2<f32>(g, g * d);")
            }
            (Mode::Moments, true) => {
                ("read_head(c)", "block_first += d;\n            block_second += d * d;")
            }
            (Mode::Gradient, true) => (
                "read_mean(c)",
                "let g = read_dy(e);\n            block_first += g;\n            block_second += g \
                 * d;",
            ),
        };
        let in_vec4s = if vec4s { " vec4s" } else { "" };
        let label = format!("batch norm, sums for {}, {dtype}{in_vec4s}", mode.name());
        Self::declare(label, mode, dtype, vec4s)
            .define("CENTER", center)
            .define("TERMS", terms)
            .body(if vec4s {
                include_str!("../../../../shaders/norm_sums_vec4s.wgsl")
            } else {
                include_str!("../../../../shaders/norm_sums.wgsl")
            })
    }
}

declare_params! {
    /// The number of channels and the extent behind them, the segments of each channel's sums, and
    /// the elements of a channel.
    struct FinishParams { channels: usize, inner: usize, segments: usize, total: usize }
}

declare_program! {
    /// Mean and variance of each channel from its sums, by `lanes` invocations.
    struct Moments = "norm_moments"(dtype: DType, lanes: u32);
    bindings { sums: F32, head: dtype, mean: F32, variance: F32 }
    params { channels: FinishParams }
}

impl Moments {
    fn shader(dtype: DType, lanes: u32) -> Shader {
        let label = format!("batch norm, moments, {lanes} lanes");
        finish(Self::declare(label, dtype, lanes), lanes).define(
            "FINISH",
            "let distance = sums.x / total;\n    store_mean(c, load_head(c * p.inner) + \
             distance);\n    store_variance(c, max(sums.y / total - distance * distance, 0.0));",
        )
    }
}

declare_program! {
    /// The gradients of each channel's scale and offset from its sums, and the coefficients of the
    /// input's gradient, by `lanes` invocations.
    struct Gradients = "norm_gradients"(lanes: u32);
    bindings {
        sums: F32, mean: F32, variance: F32, scale: F32, scale_backprop: F32,
        offset_backprop: F32, coefficients: F32,
    }
    params { channels: FinishParams, is_training: bool, epsilon: f32 }
}

impl Gradients {
    fn shader(lanes: u32) -> Shader {
        let label = format!("batch norm, gradient, {lanes} lanes");
        finish(Self::declare(label, lanes), lanes).define(
            "FINISH",
            "let inverse = inverseSqrt(load_variance(c) + p.epsilon);\n    let a = load_scale(c) * \
             inverse;\n    store_scale_backprop(c, sums.y * inverse);\n    \
             store_offset_backprop(c, sums.x);\n    // Statistics that were given do not depend on \
             x.\n    let share = select(0.0, a / total, p.is_training == 1u);\n    \
             store_coefficients(c, a);\n    store_coefficients(p.channels + c, share * inverse * \
             inverse * sums.y);\n    store_coefficients(2u * p.channels + c, share * sums.x);\n    \
             store_coefficients(3u * p.channels + c, load_mean(c));",
        )
    }
}

/// Appends the text around `FINISH`.
fn finish(shader: Shader, lanes: u32) -> Shader {
    let text = include_str!("../../../../shaders/norm_finish.wgsl");
    shader.define("LANES", lanes.to_string()).body(text)
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
            out.extend([false, true].map(|vec4s| Sums::shader(mode, dtype, vec4s)));
        }
        out.extend([1, 64].map(|lanes| Moments::shader(dtype, lanes)));
    }
    out.extend([1, 64].map(Gradients::shader));
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
        let vec4s = vec4s::fits(self, &[x]);
        let (sums, segments) = self.sums(ctx, x, vec4s, None)?;
        let call = Moments {
            sums: (&sums).into(),
            head: part(x, 0, self.channels * self.inner),
            mean: mean.into(),
            variance: variance.into(),
            channels: self.params(segments),
        };
        let lanes = lanes(segments);
        let grid = Grid::linear(self.channels * lanes as usize, WORKGROUP);
        call.enqueue(ctx.device(), &Moments::of(x.dtype, lanes), grid)
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
                &named![x],
                &named![mean, variance, scale, offset],
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
        let (sums, segments) = self.sums(ctx, g.x, vec4s, Some([g.dy, g.mean]))?;
        let call = Gradients {
            sums: (&sums).into(),
            mean: g.mean.into(),
            variance: g.variance.into(),
            scale: g.scale.into(),
            scale_backprop: g.scale_backprop.into(),
            offset_backprop: g.offset_backprop.into(),
            coefficients: g.coefficients.into(),
            channels: self.params(segments),
            is_training: g.is_training,
            epsilon: g.epsilon,
        };
        let (device, lanes) = (ctx.device(), lanes(segments));
        let grid = Grid::linear(self.channels * lanes as usize, WORKGROUP);
        call.enqueue(device, &Gradients::of(lanes), grid)?;
        if vec4s::fits(self, &[g.dy, g.x, g.coefficients, dx]) {
            let (walked, vectors) =
                (named![dy: g.dy, x: g.x], named![coefficients: g.coefficients]);
            return vec4s::BACKWARD.enqueue(device, self, &walked, &vectors, dx, 0.0);
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
    /// a binding. With `dy` and the mean, these are the sums of a gradient. With `vec4s`, four
    /// channels of all tensors are taken at once. Returns the sums and the number of segments.
    fn sums(
        &self,
        ctx: &mut dyn OpContext,
        x: &Tensor,
        vec4s: bool,
        gradient: Option<[&Tensor; 2]>,
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
            let part = if vec4s { vec4s::vec4_part } else { part };
            let window = |t: &Tensor| part(t, first * image, count * image);
            let call = Sums {
                x: window(x),
                sums: part(&sums, 0, sums.len()),
                head: gradient.is_none().then(|| part(x, 0, image)),
                dy: gradient.map(|[dy, _]| window(dy)),
                mean: gradient.map(|[_, mean]| part(mean, 0, channels)),
                count: segments * lines,
                images: count,
                lines,
                inner: (!vec4s).then_some(inner),
                segments,
                first_segment: w * segments,
                all_segments,
            };
            let mode = if gradient.is_some() { Mode::Gradient } else { Mode::Moments };
            let of = Sums::of(mode, x.dtype, vec4s);
            let grid = Grid::linear(segments * lines, WORKGROUP);
            device.enqueue_counted(&call.program(&of, grid), F32.flops(4 * count * image))?;
        }
        Ok((sums, all_segments))
    }

    const fn params(&self, segments: usize) -> FinishParams {
        let (channels, inner) = (self.channels, self.inner);
        FinishParams { channels, inner, segments, total: self.total() }
    }
}

/// The invocations that add up the segments of a channel.
const fn lanes(segments: usize) -> u32 {
    if segments < 32 { 1 } else { 64 }
}
