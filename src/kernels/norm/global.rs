//! BatchNormWithGlobalNormalization and its gradient, which occur only in graphs from before
//! TensorFlow 1.0.

use crate::device::{Binding, Grid, Key, Params, Program};
use crate::dtype::{
    DType::{self, *},
    types,
};
use crate::error::Result;
use crate::kernels::op::{Attrs, OpContext};
use crate::kernels::reduce::plan::groups;
use crate::kernels::reduce::program::reduce;
use crate::kernels::reduce::table::Reduction;
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::{Field, Shader};
use crate::tensor::{Tensor, shape_text};

const TYPES: &[DType] = types::F32_F16;

/// Registers the ops.
pub fn register(r: &mut Registry) {
    r.op("BatchNormWithGlobalNormalization").types("T", TYPES).kernel(|attrs| {
        let norm = GlobalNorm::of(attrs)?;
        Ok(move |ctx: &mut dyn OpContext| norm.forward(ctx))
    });
    r.op("BatchNormWithGlobalNormalizationGrad").types("T", TYPES).kernel(move |attrs| {
        let norm = GlobalNorm::of(attrs)?;
        Ok(move |ctx: &mut dyn OpContext| norm.backward(ctx))
    });
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    TYPES.iter().flat_map(|t| FORMULAS.iter().map(|formula| shader(formula, *t))).collect()
}

/// A program: its name, its inputs, whether its result is float32 for every type, and its result.
type Formula = (&'static str, &'static [&'static str], bool, &'static str);

const FORWARD: Formula = (
    "forward",
    &["x", "mean", "variance", "beta", "gamma"],
    false,
    "(load_x(i) - load_mean(c)) * slope(c) + load_beta(c)",
);
/// The gradient and, behind it, the products of the gradient with the distance from the mean.
const PRODUCTS: Formula = (
    "products",
    &["x", "mean", "dy"],
    true,
    "select(load_dy(j), load_dy(j) * (load_x(j) - load_mean(c)), i >= p.elements)",
);
const INPUT: Formula = ("input", &["variance", "gamma", "dy"], false, "load_dy(i) * slope(c)");
/// The gradients of mean, variance, beta and gamma, by number.
const CHANNEL: Formula = ("channel", &["sums", "variance", "gamma"], false, "channel_gradient(c)");
const FORMULAS: &[Formula] = &[FORWARD, PRODUCTS, INPUT, CHANNEL];

struct GlobalNorm {
    epsilon: f32,
    scaled: bool,
}

impl GlobalNorm {
    fn of(attrs: &dyn Attrs) -> Result<Self> {
        Ok(Self {
            epsilon: attrs.float("variance_epsilon")?,
            scaled: attrs.bool("scale_after_normalization")?,
        })
    }

    /// Inputs: t, m, v, beta, gamma.
    fn forward(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let [x, mean, variance] = [ctx.input(0)?, ctx.input(1)?, ctx.input(2)?];
        let [beta, gamma] = [ctx.input(3)?, ctx.input(4)?];
        check(&x, &[(&mean, "mean"), (&variance, "var"), (&beta, "beta"), (&gamma, "gamma")])?;
        let y = ctx.output(0, x.dtype, &x.dims)?;
        self.enqueue(
            ctx,
            &FORWARD,
            x.dims[3],
            x.len(),
            0,
            &[&x, &mean, &variance, &beta, &gamma, &y],
        )
    }

    /// Inputs: t, m, v, gamma, backprop. Outputs: dx, dm, dv, db, dg.
    fn backward(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let [x, mean, variance] = [ctx.input(0)?, ctx.input(1)?, ctx.input(2)?];
        let [gamma, dy] = [ctx.input(3)?, ctx.input(4)?];
        check(&x, &[(&mean, "mean"), (&variance, "var"), (&gamma, "gamma")])?;
        require!(
            dy.dims == x.dims,
            "out_backprop must have the shape of the input, got {}",
            shape_text(&dy.dims)
        );
        let (channels, elements) = (x.dims[3], x.len());
        let dx = ctx.output(0, x.dtype, &x.dims)?;
        self.enqueue(ctx, &INPUT, channels, elements, 0, &[&variance, &gamma, &dy, &dx])?;
        let dims = [2, elements.checked_div(channels).unwrap_or(0), channels];
        let products = ctx.temp(F32, &dims)?;
        self.enqueue(ctx, &PRODUCTS, channels, elements, 0, &[&x, &mean, &dy, &products])?;
        let sums = ctx.temp(F32, &[2, channels])?;
        reduce(ctx, Reduction::of("Sum"), &products, &groups(&dims, &[false, true, false]), &sums)?;
        for which in 1..5 {
            let result = ctx.output(which, x.dtype, &[channels])?;
            self.enqueue(
                ctx,
                &CHANNEL,
                channels,
                elements,
                which,
                &[&sums, &variance, &gamma, &result],
            )?;
        }
        Ok(())
    }

    fn enqueue(
        &self,
        ctx: &dyn OpContext,
        formula: &'static Formula,
        channels: usize,
        elements: usize,
        which: usize,
        tensors: &[&Tensor],
    ) -> Result<()> {
        let Some(result) = tensors.last().filter(|t| !t.is_empty()) else { return Ok(()) };
        let device = ctx.device();
        device.check_extent(result.len())?;
        // The result of the products is float32 for every type.
        let dtype = if formula.2 { tensors[0].dtype } else { result.dtype };
        device.enqueue_counted(
            &Program {
                key: Key::new("global norm").name(formula.0).dtype(dtype),
                shader: &|| shader(formula, dtype),
                bindings: tensors.iter().map(|t| Binding::from(*t)).collect(),
                params: Params::new()
                    .u32(result.len())
                    .u32(channels)
                    .u32(elements)
                    .u32(which)
                    .u32(u32::from(self.scaled))
                    .f32(self.epsilon),
                grid: Grid::map(result.len(), result.dtype),
            },
            dtype.flops(3 * result.len()),
        )
    }
}

fn check(x: &Tensor, vectors: &[(&Tensor, &str)]) -> Result<()> {
    require!(x.rank() == 4, "input must be 4-dimensional{}", shape_text(&x.dims));
    for (t, name) in vectors {
        require!(t.rank() == 1, "{name} must be 1-dimensional{}", shape_text(&t.dims));
        require!(
            t.dims[0] == x.dims[3],
            "{name} must have {} elements, got {}",
            x.dims[3],
            t.dims[0]
        );
    }
    Ok(())
}

fn shader(formula: &Formula, dtype: DType) -> Shader {
    let bind = |shader: Shader, name: &&'static str| {
        shader.bind(name, if *name == "sums" { F32 } else { dtype })
    };
    let shader =
        formula.1.iter().fold(Shader::new(format!("global norm {} {dtype}", formula.0)), bind);
    let shader = shader.bind("result", if formula.2 { F32 } else { dtype });
    let text = |name: &str, text: &'static str| if formula.1.contains(&name) { text } else { "" };
    shader
        .u32s(&["count", "channels", "elements", "which", "scaled"])
        .param("epsilon", Field::F32)
        .define("RESULT", formula.3)
        .body(text("variance", include_str!("../../../shaders/norm_global_slope.wgsl")))
        .body(text("sums", include_str!("../../../shaders/norm_global_channel.wgsl")))
        .body(include_str!("../../../shaders/norm_global.wgsl"))
        .map("result")
}
