//! Stateful ops whose kernel owns its generator, seeded by the attributes `seed` and `seed2`. Each
//! run takes the next piece of the stream.

use parking_lot::Mutex;

use super::distribution::{Bounds, Distribution, StateSource, fill};
use super::inputs;
use super::philox::Generator;
use crate::dtype::{DType, types};
use crate::error::Result;
use crate::kernels::op::{Kernel, OpContext};
use crate::kernels::registry::Registry;

/// Adds the ops.
pub fn register(registry: &mut Registry) {
    for (op, distribution) in [
        ("RandomUniform", Distribution::Uniform),
        ("RandomStandardNormal", Distribution::Normal),
        ("TruncatedNormal", Distribution::TruncatedNormal),
        ("RandomUniformInt", Distribution::UniformInt),
    ] {
        let bounded = distribution == Distribution::UniformInt;
        let output: &'static str = if bounded { "Tout" } else { "dtype" };
        registry
            .op(op)
            .types(output, distribution.types())
            .types("T", types::INDEX)
            .host(if bounded { &["shape", "minval", "maxval"] } else { &["shape"] })
            .kernel(move |attrs| {
                let generator = Generator::seeded(attrs.int("seed")?, attrs.int("seed2")?);
                Ok(Stateful {
                    distribution,
                    dtype: attrs.dtype(output)?,
                    generator: Mutex::new(generator),
                })
            });
    }
}

/// Inputs: shape[, minval, maxval].
struct Stateful {
    distribution: Distribution,
    dtype: DType,
    generator: Mutex<Generator>,
}

impl Kernel for Stateful {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let dims = inputs::shape(ctx, 0)?;
        let Some(output) = ctx.some_output(0, self.dtype, &dims)? else { return Ok(()) };
        let bounds = match self.distribution {
            Distribution::UniformInt => inputs::bounds(ctx, 1)?,
            _ => Bounds::default(),
        };
        let generator = {
            let mut next = self.generator.lock();
            let generator = *next;
            next.skip((output.len() as u64).wrapping_mul(super::SAMPLES_PER_OUTPUT));
            generator
        };
        fill(ctx.device(), &output, self.distribution, bounds, StateSource::Host(generator))
    }
}
