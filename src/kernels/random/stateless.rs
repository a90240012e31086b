//! Stateless ops: the numbers depend on the inputs alone. The first version takes a seed, the second a key and a counter, which
//! the ops `StatelessRandomGet*` make of a seed on the host, as in TensorFlow.

use super::distribution::{Bounds, Distribution, Source, fill};
use super::inputs;
use super::philox::Generator;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::tensor::HostTensor;

/// Op of the first version, op of the second, and what they draw.
const OPS: &[(&str, &str, Distribution)] = &[
    ("StatelessRandomUniform", "StatelessRandomUniformV2", Distribution::Uniform),
    ("StatelessRandomNormal", "StatelessRandomNormalV2", Distribution::Normal),
    ("StatelessTruncatedNormal", "StatelessTruncatedNormalV2", Distribution::TruncatedNormal),
    ("StatelessRandomUniformInt", "StatelessRandomUniformIntV2", Distribution::UniformInt),
    ("StatelessRandomUniformFullInt", "StatelessRandomUniformFullIntV2", Distribution::UniformFullInt),
];

/// Adds the ops.
pub fn register(registry: &mut Registry) {
    for &(seeded, keyed, distribution) in OPS {
        let bounded = distribution == Distribution::UniformInt;
        let host: (&[&str], &[&str]) = if bounded {
            (&["shape", "seed", "minval", "maxval"], &["shape", "alg", "minval", "maxval"])
        } else {
            (&["shape", "seed"], &["shape", "alg"])
        };
        registry
            .op(seeded)
            .types("dtype", distribution.types())
            .host(host.0)
            .kernel(move |attrs| Ok(Seeded { distribution, dtype: attrs.dtype("dtype")? }));
        registry
            .op(keyed)
            .types("dtype", distribution.types())
            .host(host.1)
            .kernel(move |attrs| Ok(Keyed { distribution, dtype: attrs.dtype("dtype")? }));
    }
    registry
        .op("StatelessRandomGetKeyCounter")
        .host(&["seed", "key", "counter"])
        .kernel(|_| Ok(GetKeyCounter { with_algorithm: false }));
    registry
        .op("StatelessRandomGetKeyCounterAlg")
        .host(&["seed", "key", "counter", "alg"])
        .kernel(|_| Ok(GetKeyCounter { with_algorithm: true }));
    registry.op("StatelessRandomGetAlg").host(&["alg"]).kernel(|_: &dyn Attrs| Ok(GetAlg));
}

/// shape, seed[, minval, maxval].
struct Seeded {
    distribution: Distribution,
    dtype: DType,
}

impl Kernel for Seeded {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let dims = inputs::shape(ctx, 0)?;
        let seed = inputs::seed(ctx, 1)?;
        let output = ctx.output(0, self.dtype, &dims)?;
        if output.is_empty() {
            return Ok(());
        }
        let bounds = bounds_for(self.distribution, ctx, 2)?;
        fill(ctx.device(), &output, self.distribution, bounds, Source::Host(Generator::scrambled(seed)))
    }
}

/// shape, key, counter, alg[, minval, maxval].
struct Keyed {
    distribution: Distribution,
    dtype: DType,
}

impl Kernel for Keyed {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        inputs::philox(ctx, 3, || Error::InvalidArgument("Unsupported algorithm id: 2".to_owned()))?;
        let (key, counter) = (ctx.input(1)?, ctx.input(2)?);
        inputs::key_and_counter(&key.dims, &counter.dims)?;
        let dims = inputs::shape(ctx, 0)?;
        let output = ctx.output(0, self.dtype, &dims)?;
        if output.is_empty() {
            return Ok(());
        }
        let bounds = bounds_for(self.distribution, ctx, 4)?;
        let source = Source::Device { counter: &counter, key: &key };
        fill(ctx.device(), &output, self.distribution, bounds, source)
    }
}

/// The bounds at input `i`, where the distribution has any.
fn bounds_for(distribution: Distribution, ctx: &mut dyn OpContext, i: usize) -> Result<Bounds> {
    if distribution == Distribution::UniformInt { inputs::bounds(ctx, i) } else { Ok(Bounds::default()) }
}

fn philox_id() -> HostTensor {
    HostTensor::i32(&[], &[1])
}

struct GetKeyCounter {
    with_algorithm: bool,
}

impl Kernel for GetKeyCounter {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let generator = Generator::scrambled(inputs::seed(ctx, 0)?);
        ctx.host_output(0, &HostTensor::of(DType::U64, &[1], &[generator.key_u64()]))?;
        ctx.host_output(1, &HostTensor::of(DType::U64, &[2], &generator.counter_u64s()))?;
        if self.with_algorithm {
            ctx.host_output(2, &philox_id())?;
        }
        Ok(())
    }
}

struct GetAlg;

impl Kernel for GetAlg {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        ctx.host_output(0, &philox_id())
    }
}
