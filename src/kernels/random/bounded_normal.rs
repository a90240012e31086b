//! ParameterizedTruncatedNormal and its stateless twin: normal numbers between two bounds, each
//! place with its own mean, deviation and bounds.
//!
//! TensorFlow's kernels take an unknown number of samples for each output: on the CPU these samples
//! depend on the number of threads, on a GPU on its size. So the numbers here differ, but have the
//! same distribution; they depend only on seed and place. As on TensorFlow's GPU, invalid
//! parameters give NaN.

use super::distribution::generator;
use super::inputs;
use super::philox::Generator;
use crate::device::{Axes, Grid, declare_program};
use crate::dtype::{DType, types};
use crate::error::Result;
use crate::kernels::movement::walk::copy_strided;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::layout::{Iteration, broadcast_dims};
use crate::require;
use crate::shader::{List, Shader};
use crate::tensor::{Dims, Tensor};
use parking_lot::Mutex;

const TYPES: &[DType] = types::FLOATS_BUT_BF16;
const NOTE: &str = "other numbers than TensorFlow's, of the same distribution";
const NAMES: [&str; 4] = ["means", "stddevs", "minvals", "maxvals"];

/// Adds the ops.
pub fn register(registry: &mut Registry) {
    registry
        .op("ParameterizedTruncatedNormal")
        .types("dtype", TYPES)
        .host(&["shape"])
        .note(NOTE)
        .kernel(|attrs: &dyn Attrs| {
            let generator = Generator::seeded(attrs.int("seed")?, attrs.int("seed2")?);
            Ok(Stateful { dtype: attrs.dtype("dtype")?, generator: Mutex::new(generator) })
        });
    registry
        .op("StatelessParameterizedTruncatedNormal")
        .types("dtype", TYPES)
        .host(&["shape", "seed"])
        .note(NOTE)
        .kernel(|attrs: &dyn Attrs| Ok(Stateless { dtype: attrs.dtype("dtype")? }));
}

/// Inputs: shape, means, stdevs, minvals, maxvals.
struct Stateful {
    dtype: DType,
    generator: Mutex<Generator>,
}

/// Inputs: shape, seed, means, stddevs, minvals, maxvals.
struct Stateless {
    dtype: DType,
}

fn parameters(ctx: &mut dyn OpContext, first: usize) -> Result<[Tensor; 4]> {
    Ok([ctx.input(first)?, ctx.input(first + 1)?, ctx.input(first + 2)?, ctx.input(first + 3)?])
}

impl Kernel for Stateful {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let dims = inputs::shape(ctx, 0)?;
        require!(!dims.is_empty(), "Shape must have rank >= 1 but is rank 0");
        let parameters = parameters(ctx, 1)?;
        for (name, t) in NAMES.iter().zip(&parameters) {
            require!(
                t.rank() <= 1,
                "Input {name} should be a scalar or vector, got shape: {}",
                inputs::text(&t.dims)
            );
            require!(
                t.rank() == 0 || t.len() == 1 || t.len() == dims[0],
                "Input {name} should have length 1 or shape[0], got shape: {}",
                inputs::text(&t.dims)
            );
        }
        let Some(output) = ctx.some_output(0, self.dtype, &dims)? else { return Ok(()) };
        let generator = {
            let mut next = self.generator.lock();
            let generator = *next;
            next.skip((output.len() as u64).wrapping_mul(super::SAMPLES_PER_OUTPUT));
            generator
        };
        draw(ctx, &output, &parameters, dims[1..].iter().product(), dims[0], generator)
    }
}

impl Kernel for Stateless {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let dims = inputs::shape(ctx, 0)?;
        let seed = inputs::seed(ctx, 1)?;
        let mut parameters = parameters(ctx, 2)?;
        let mut common = Dims::new();
        for t in &parameters {
            common = broadcast_dims(&common, &t.dims)?;
        }
        require!(dims.ends_with(&common), "Shape passed in must end with broadcasted shape.");
        let Some(output) = ctx.some_output(0, self.dtype, &dims)? else { return Ok(()) };
        for t in &mut parameters {
            if t.len() > 1 && t.dims != common {
                let whole = ctx.temp(t.dtype, &common)?;
                let walk = Iteration::over(&common).broadcast(&t.dims).broadcast(&common);
                copy_strided(ctx.device(), &walk, t, &whole)?;
                *t = whole;
            }
        }
        let places = common.iter().product();
        draw(ctx, &output, &parameters, 1, places, Generator::scrambled(seed))
    }
}

/// Fills `output` with `each` numbers for each of `places`, repeatedly.
fn draw(
    ctx: &dyn OpContext,
    output: &Tensor,
    parameters: &[Tensor; 4],
    each: usize,
    places: usize,
    generator: Generator,
) -> Result<()> {
    let device = ctx.device();
    device.check_extent(output.len())?;
    let (count, counts) = (output.len(), Axes(parameters.each_ref().map(Tensor::len)));
    let parameters = NAMES.into_iter().zip(parameters.iter().map(Into::into)).collect();
    let y = output.into();
    let call = BoundedNormal { parameters, y, count, each, places, counts, generator };
    let dtype = output.dtype;
    call.enqueue(device, &BoundedNormal::of(dtype), Grid::map(output.len(), dtype))
}

/// The shader variants.
pub fn shaders() -> Vec<Shader> {
    TYPES.iter().map(|t| BoundedNormal::shader(*t)).collect()
}

declare_program! {
    /// Draws `each` numbers for each of `places`, repeatedly.
    struct BoundedNormal = "random bounded normal"(dtype: DType);
    lists { parameters: List(NAMES.map(|name| (name, dtype))) }
    bindings { y: dtype }
    params { count: usize, each: usize, places: usize, counts: Axes<4>, generator: Generator }
}

impl BoundedNormal {
    fn shader(dtype: DType) -> Shader {
        let wide = dtype == DType::F64;
        let s = Self::declare(format!("random bounded normal {dtype}"), dtype)
            .define("F", dtype.value())
            .define("WIDE", if wide { "1.3lf" } else { "1.3" });
        let text = include_str!("../../../shaders/random/bounded_normal.wgsl");
        generator(s, false).body(text).map("y")
    }
}
