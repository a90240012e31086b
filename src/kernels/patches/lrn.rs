//! LRN and LRNGrad: each element is divided by a power of a sum of squares of its neighbours among
//! the channels.
//!
//! TensorFlow's GPU kernels refuse parameters that cuDNN lacks (a radius over 7, a small beta);
//! these kernels, like the CPU's, accept all.

use crate::device::{Grid, declare_program, enum_key_parts};
use crate::dtype::DType::*;
use crate::error::Result;
use crate::kernels::iterations::{STEPS, steps};
use crate::kernels::op::{Attrs, OpContext};
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::Tensor;

/// Registers the ops.
pub fn register(r: &mut Registry) {
    r.op("LRN").types("T", &[F32]).items(&[(0, 3)]).kernel(|attrs| {
        let lrn = Normalization::of(attrs)?;
        Ok(move |ctx: &mut dyn OpContext| lrn.forward(ctx))
    });
    r.op("LRNGrad").types("T", &[F32]).items(&[(0, 3), (1, 3), (2, 3)]).kernel(|attrs| {
        let lrn = Normalization::of(attrs)?;
        Ok(move |ctx: &mut dyn OpContext| lrn.gradient(ctx))
    });
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let powers = [Power::Half, Power::ThreeQuarters, Power::One, Power::Any];
    let programs = [LrnProgram::Forward, LrnProgram::Gradient].into_iter();
    let mut all: Vec<_> =
        programs.flat_map(|program| powers.map(|power| Lrn::shader(program, power, 1))).collect();
    for program in [LrnProgram::Scale, LrnProgram::Forward, LrnProgram::Gradient] {
        all.extend(STEPS.map(|steps| Lrn::shader(program, Power::Any, steps)));
    }
    all
}

/// The programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LrnProgram {
    /// `bias + alpha * sum of squares`.
    Scale,
    /// The result from x.
    Forward,
    /// The gradient from x, scale, y and dy.
    Gradient,
}

/// How `scale ^ -beta` is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Power {
    /// `beta` is 0.5.
    Half,
    /// `beta` is 0.75.
    ThreeQuarters,
    /// `beta` is 1.
    One,
    /// `beta` has any other value.
    Any,
}

impl Power {
    /// The power for a `beta`. Roots and a division are exact to a few units in the last place.
    const fn of(beta: f32) -> Self {
        match beta {
            0.5 => Self::Half,
            0.75 => Self::ThreeQuarters,
            1.0 => Self::One,
            _ => Self::Any,
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Half => "1.0 / sqrt(s)",
            Self::ThreeQuarters => "1.0 / (sqrt(s) * sqrt(sqrt(s)))",
            Self::One => "1.0 / s",
            Self::Any => {
                "vec4(pow_f32(s.x, -p.beta), pow_f32(s.y, -p.beta), pow_f32(s.z, -p.beta), \
                 pow_f32(s.w, -p.beta))"
            }
        }
    }
}

struct Normalization {
    radius: usize,
    bias: f32,
    alpha: f32,
    beta: f32,
}

impl Normalization {
    fn of(attrs: &dyn Attrs) -> Result<Self> {
        let radius = attrs.int("depth_radius")?;
        require!(
            (0..i64::from(i32::MAX)).contains(&radius),
            "depth_radius = {radius} larger than int max"
        );
        Ok(Self {
            radius: radius as usize,
            bias: attrs.float("bias")?,
            alpha: attrs.float("alpha")?,
            beta: attrs.float("beta")?,
        })
    }

    /// Inputs: input.
    fn forward(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let x = ctx.input(0)?;
        require!(x.rank() == 4, "in must be 4-dimensional");
        let Some(y) = ctx.some_output(0, F32, &x.dims)? else { return Ok(()) };
        self.enqueue(ctx, LrnProgram::Forward, &x, [None, Some(&y), None, None])
    }

    /// Inputs: input_grads, input_image, output_image.
    fn gradient(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (dy, x, y) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        require!(dy.rank() == 4 && x.rank() == 4, "inputs must be 4-dimensional");
        require!(
            x.dims == dy.dims && y.dims == dy.dims,
            "input_grads, input_image, and out_image should have the same shape"
        );
        let Some(dx) = ctx.some_output(0, F32, &x.dims)? else { return Ok(()) };
        let scale = ctx.temp(F32, &x.dims)?;
        self.enqueue(ctx, LrnProgram::Scale, &x, [Some(&scale), None, None, None])?;
        self.enqueue(ctx, LrnProgram::Gradient, &x, [&scale, &y, &dy, &dx].map(Some))
    }

    /// `others` are the scale, the result, its gradient and the gradient of `x`, as far as the
    /// program has them.
    fn enqueue(
        &self,
        ctx: &dyn OpContext,
        program: LrnProgram,
        x: &Tensor,
        others: [Option<&Tensor>; 4],
    ) -> Result<()> {
        let device = ctx.device();
        device.check_extent(x.len())?;
        let depth = x.dims[3];
        let radius = self.radius.min(depth);
        let window = depth.min(2 * radius + 1);
        let steps = steps(&device.profile(), |steps| window.div_ceil(steps))?;
        let runs = depth.div_ceil(RUN);
        let count = x.len() / depth * runs;
        // The program of the scale has no power.
        let power = if program == LrnProgram::Scale { Power::Any } else { Power::of(self.beta) };
        let [scale, y, dy, dx] = others.map(|t| t.map(Into::into));
        device.enqueue_counted(
            &Lrn {
                x: x.into(),
                scale,
                y,
                dy,
                dx,
                count,
                runs,
                depth,
                radius,
                bias: self.bias,
                alpha: self.alpha,
                beta: self.beta,
            }
            .program(&Lrn::of(program, power, steps), Grid::linear(count, WORKGROUP)),
            F32.flops((2 * window + 4) * x.len()),
        )
    }
}

/// Channels of an invocation.
const RUN: usize = 4;

enum_key_parts!(LrnProgram, Power);

declare_program! {
    /// A step of the normalization, with `steps` neighbours in an iteration.
    struct Lrn = "lrn"(program: LrnProgram, power: Power, steps: u32);
    bindings { x: F32 }
    optional {
        scale: (program != LrnProgram::Forward).then_some(F32),
        y: (program != LrnProgram::Scale).then_some(F32),
        dy: (program == LrnProgram::Gradient).then_some(F32),
        dx: (program == LrnProgram::Gradient).then_some(F32),
    }
    params {
        count: usize, runs: usize, depth: usize, radius: usize, bias: f32, alpha: f32, beta: f32,
    }
}

impl Lrn {
    fn shader(program: LrnProgram, power: Power, steps: u32) -> Shader {
        let (output, text) = match program {
            LrnProgram::Scale => ("scale", include_str!("../../../shaders/patches/lrn_scale.wgsl")),
            LrnProgram::Forward => ("y", include_str!("../../../shaders/patches/lrn_forward.wgsl")),
            LrnProgram::Gradient => {
                ("dx", include_str!("../../../shaders/patches/lrn_gradient.wgsl"))
            }
        };
        let label = format!("lrn {program:?} {power:?} by {steps}");
        let shader = Self::declare(label, program, power, steps).define("OUTPUT", output);
        let shader = match (program, power) {
            (LrnProgram::Scale, _) => shader,
            _ => shader.define("POWER", power.text()).body(POWER),
        };
        let common = include_str!("../../../shaders/patches/lrn_common.wgsl");
        shader.body(text).unrolled(steps, common)
    }
}

const POWER: &str = "fn power(s: vec4<f32>) -> vec4<f32> {\n    return {{POWER}};\n}\n";
