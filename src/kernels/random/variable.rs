//! Ops of `tf.random.Generator`: the generator's state is an int64 variable, whose first three
//! elements are the counter's two halves and the key.

use super::distribution::{Bounds, Distribution, StateSource, advance, fill};
use super::inputs;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::op::{Kernel, OpContext, VariableUpdate};
use crate::kernels::registry::Registry;
use crate::require;
use crate::tensor::Tensor;

/// Elements of the state.
pub(super) const STATE: usize = 3;

/// Adds the ops.
pub fn register(registry: &mut Registry) {
    for (op, distribution) in [
        ("StatefulUniform", Distribution::Uniform),
        ("StatefulStandardNormalV2", Distribution::Normal),
        ("StatefulTruncatedNormal", Distribution::TruncatedNormal),
        ("StatefulUniformInt", Distribution::UniformInt),
        ("StatefulUniformFullInt", Distribution::UniformFullInt),
    ] {
        let bounded = distribution == Distribution::UniformInt;
        registry
            .op(op)
            .types("dtype", distribution.types())
            .host(if bounded {
                &["resource", "algorithm", "shape", "minval", "maxval"]
            } else {
                &["resource", "algorithm", "shape"]
            })
            .kernel(move |attrs| Ok(Draw { distribution, dtype: attrs.dtype("dtype")? }));
    }
    registry
        .op("RngSkip")
        .host(&["resource", "algorithm", "delta"])
        .kernel(|_| Ok(Skip { reads: false }));
    registry
        .op("RngReadAndSkip")
        .host(&["resource", "alg", "delta"])
        .kernel(|_| Ok(Skip { reads: true }));
}

fn algorithm(ctx: &mut dyn OpContext) -> Result<()> {
    inputs::philox(ctx, 1, || {
        Error::Unimplemented("Non-XLA devices don't support the ThreeFry algorithm.".to_owned())
    })
}

/// Fails unless the variable holds a state.
pub(super) fn check_state(state: &Tensor) -> Result<()> {
    require!(
        state.dtype == DType::I64,
        "dtype of RNG state variable must be int64, not {}",
        state.dtype
    );
    require!(
        state.rank() == 1,
        "RNG state must have one and only one dimension, not {}",
        state.rank()
    );
    require!(
        state.len() >= STATE,
        "For the Philox algorithm, the size of state must be at least {STATE}; got {}",
        state.len()
    );
    Ok(())
}

/// Inputs: resource, algorithm, shape[, minval, maxval].
struct Draw {
    distribution: Distribution,
    dtype: DType,
}

impl Kernel for Draw {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        algorithm(ctx)?;
        let bounds = match self.distribution {
            Distribution::UniformInt => inputs::bounds(ctx, 3)?,
            _ => Bounds::default(),
        };
        let dims = inputs::shape(ctx, 2)?;
        check_state(&ctx.read_variable(0)?)?;
        let Some(output) = ctx.some_output(0, self.dtype, &dims)? else { return Ok(()) };
        let samples = (output.len() as u64).wrapping_mul(super::SAMPLES_PER_OUTPUT);
        ctx.update_variable(0, VariableUpdate::Sparse, &mut |ctx, _, state| {
            check_state(state)?;
            let key = Tensor::new(DType::I64, &[1], state.address + 16);
            fill(
                ctx.device(),
                &output,
                self.distribution,
                bounds,
                StateSource::Device { counter: state, key: &key },
            )?;
            advance(ctx.device(), state, samples)
        })
    }
}

/// Inputs: resource, algorithm, delta.
struct Skip {
    reads: bool,
}

impl Kernel for Skip {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        algorithm(ctx)?;
        let delta = ctx.host_input(2)?;
        require!(
            delta.dims.is_empty(),
            "input 2 (0-based) must have shape [], not {:?}",
            delta.dims
        );
        // int64 for RngSkip, uint64 for RngReadAndSkip; the product wraps either way.
        let samples = delta.values::<u64>()[0].wrapping_mul(super::SAMPLES_PER_OUTPUT);
        check_state(&ctx.read_variable(0)?)?;
        let before = if self.reads { Some(ctx.output(0, DType::I64, &[STATE])?) } else { None };
        ctx.update_variable(0, VariableUpdate::Sparse, &mut |ctx, _, state| {
            check_state(state)?;
            if let Some(before) = &before {
                ctx.device().copy(before.address, state.address, before.bytes())?;
            }
            advance(ctx.device(), state, samples)
        })
    }
}
