//! LRN and LRNGrad: each element is divided by a power of the squares of its neighbours among the channels.
//!
//! TensorFlow's GPU refuses parameters that cuDNN lacks (a radius over 7, a small beta); these kernels, like the CPU's, take all.

use crate::device::{Binding, Grid, Key, Params, Program};
use crate::dtype::DType::*;
use crate::error::Result;
use crate::kernels::conv::depthwise::check_iterations;
use crate::kernels::op::{Attrs, OpContext};
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::{Field, Shader};
use crate::tensor::Tensor;

/// Registers the ops.
pub fn register(r: &mut Registry) {
    r.op("LRN").types("T", &[F32]).kernel(|attrs| {
        let lrn = Lrn::of(attrs)?;
        Ok(move |ctx: &mut dyn OpContext| lrn.forward(ctx))
    });
    r.op("LRNGrad").types("T", &[F32]).kernel(|attrs| {
        let lrn = Lrn::of(attrs)?;
        Ok(move |ctx: &mut dyn OpContext| lrn.gradient(ctx))
    });
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    [Step::Scale, Step::Forward, Step::Gradient].map(shader).into()
}

/// The programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// `bias + alpha * sum of squares`.
    Scale,
    /// The result from x and scale.
    Forward,
    /// The gradient from x, scale, y and dy.
    Gradient,
}

struct Lrn {
    radius: usize,
    bias: f32,
    alpha: f32,
    beta: f32,
}

impl Lrn {
    fn of(attrs: &dyn Attrs) -> Result<Self> {
        let radius = attrs.int("depth_radius")?;
        require!((0..i64::from(i32::MAX)).contains(&radius), "depth_radius = {radius} larger than int max");
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
        let y = ctx.output(0, F32, &x.dims)?;
        if y.is_empty() {
            return Ok(());
        }
        let scale = ctx.temp(F32, &x.dims)?;
        self.enqueue(ctx, Step::Scale, &[&x, &scale])?;
        self.enqueue(ctx, Step::Forward, &[&x, &scale, &y])
    }

    /// Inputs: input_grads, input_image, output_image.
    fn gradient(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (dy, x, y) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        require!(dy.rank() == 4 && x.rank() == 4, "inputs must be 4-dimensional");
        require!(
            x.dims == dy.dims && y.dims == dy.dims,
            "input_grads, input_image, and out_image should have the same shape"
        );
        let dx = ctx.output(0, F32, &x.dims)?;
        if dx.is_empty() {
            return Ok(());
        }
        let scale = ctx.temp(F32, &x.dims)?;
        self.enqueue(ctx, Step::Scale, &[&x, &scale])?;
        self.enqueue(ctx, Step::Gradient, &[&x, &scale, &y, &dy, &dx])
    }

    fn enqueue(&self, ctx: &dyn OpContext, step: Step, tensors: &[&Tensor]) -> Result<()> {
        let (device, x) = (ctx.device(), tensors[0]);
        device.check_extent(x.len())?;
        let depth = x.dims[3];
        let radius = self.radius.min(depth);
        check_iterations(device, depth.min(2 * radius + 1))?;
        device.enqueue(&Program {
            key: Key::new("lrn").number(step as u32),
            shader: &|| shader(step),
            bindings: tensors.iter().map(|t| Binding::from(*t)).collect(),
            params: Params::new().u32(x.len()).u32(depth).u32(radius).f32(self.bias).f32(self.alpha).f32(self.beta),
            grid: Grid::map(x.len(), F32),
        })
    }
}

fn shader(step: Step) -> Shader {
    let (names, output): (&[&'static str], _) = match step {
        Step::Scale => (&["x"], "scale"),
        Step::Forward => (&["x", "scale"], "y"),
        Step::Gradient => (&["x", "scale", "y", "dy"], "dx"),
    };
    let text = match step {
        Step::Scale => include_str!("../../../shaders/patches/lrn_scale.wgsl"),
        Step::Forward => include_str!("../../../shaders/patches/lrn_forward.wgsl"),
        Step::Gradient => include_str!("../../../shaders/patches/lrn_gradient.wgsl"),
    };
    let shader = names.iter().fold(Shader::new(format!("lrn {step:?}")), |shader, name| shader.bind(name, F32));
    shader
        .bind(output, F32)
        .u32s(&["count", "depth", "radius"])
        .param("bias", Field::F32)
        .param("alpha", Field::F32)
        .param("beta", Field::F32)
        .library("pow")
        .body(include_str!("../../../shaders/patches/lrn_common.wgsl"))
        .body(text)
        .map(output)
}
