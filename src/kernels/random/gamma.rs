//! Samples of gamma distributions, those of TensorFlow's CPU and GPU kernels for the same seed, up
//! to rounding: TensorFlow computes in float64, this in float32 unless the output is float64, so
//! that one try in millions is rejected by one of them and accepted by the other.

use super::distribution::{StateSource, generator, state};
use super::inputs;
use super::philox::Generator;
use crate::device::{Grid, declare_program};
use crate::dtype::{DType, types};
use crate::error::Result;
use crate::kernels::op::{Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::Shader;
use crate::tensor::Tensor;

/// Types of alpha and of the samples.
const TYPES: &[DType] = types::FLOATS;

/// Adds the ops.
pub fn register(registry: &mut Registry) {
    registry
        .op("StatelessRandomGammaV2")
        .types("dtype", TYPES)
        .host(&["shape", "seed"])
        .kernel(|attrs| Ok(Gamma { dtype: attrs.dtype("dtype")?, keyed: false }));
    registry
        .op("StatelessRandomGammaV3")
        .types("dtype", TYPES)
        .host(&["shape", "alg"])
        .kernel(|attrs| Ok(Gamma { dtype: attrs.dtype("dtype")?, keyed: true }));
}

/// The shader variants.
pub fn shaders() -> Vec<Shader> {
    TYPES
        .iter()
        .flat_map(|t| [false, true].map(|on_device| Samples::shader(*t, on_device)))
        .collect()
}

declare_program! {
    /// Draws `per_alpha` times a number for each alpha.
    struct Samples = "random gamma"(dtype: DType, on_device: bool);
    bindings { alpha: dtype, y: dtype }
    optional { counter: state(on_device), key: state(on_device) }
    params {
        count: usize, alphas: usize, per_alpha: usize, generator: Option<Generator> = !on_device,
    }
}

impl Samples {
    fn shader(dtype: DType, on_device: bool) -> Shader {
        let wide = dtype == DType::F64;
        let s = Self::declare(format!("random gamma {dtype}"), dtype, on_device)
            .define("F", dtype.value())
            .define("THIRD", if wide { "0.333333333333333333lf" } else { "0.333333333" })
            .define("SQUEEZE", if wide { "0.0331lf" } else { "0.0331" })
            .define("HALF", if wide { "0.5lf" } else { "0.5" });
        generator(s, on_device).body(include_str!("../../../shaders/random/gamma.wgsl")).map("y")
    }
}

/// Inputs: shape, seed, alpha; or shape, key, counter, alg, alpha.
struct Gamma {
    dtype: DType,
    keyed: bool,
}

impl Kernel for Gamma {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        if !self.keyed {
            let dims = inputs::shape(ctx, 0)?;
            let seed = inputs::seed(ctx, 1)?;
            let output = ctx.output(0, self.dtype, &dims)?;
            return self.draw(ctx, &output, 2, StateSource::Host(Generator::scrambled(seed)));
        }
        let [key, counter] = inputs::keyed(ctx)?;
        let dims = inputs::shape(ctx, 0)?;
        let output = ctx.output(0, self.dtype, &dims)?;
        self.draw(ctx, &output, 4, StateSource::Device { counter: &counter, key: &key })
    }
}

impl Gamma {
    /// Fills `output` with samples for the alphas in input `i`.
    fn draw(
        &self,
        ctx: &mut dyn OpContext,
        output: &Tensor,
        i: usize,
        source: StateSource<'_>,
    ) -> Result<()> {
        if output.is_empty() {
            return Ok(());
        }
        let alpha = ctx.input(i)?;
        require!(
            output.dims.ends_with(&alpha.dims),
            "Shape passed in must end with broadcasted shape."
        );
        require!(!alpha.is_empty(), "Input alpha should have non-zero element count, got: 0");
        let device = ctx.device();
        device.check_extent(output.len())?;
        let (count, alphas, generator) = (output.len(), alpha.len(), source.generator());
        let ([counter, key], per_alpha) = (source.bindings(), count / alphas);
        let (alpha, y) = ((&alpha).into(), output.into());
        let call = Samples { alpha, y, counter, key, count, alphas, per_alpha, generator };
        let of = Samples::of(self.dtype, source.on_device());
        call.enqueue(device, &of, Grid::map(output.len(), self.dtype))
    }
}
