//! Stateless ops: the numbers depend on the inputs alone. The first version takes a seed, the
//! second version a key and a counter, which the ops `StatelessRandomGet*` make of a seed.
//!
//! TensorFlow's GPU kernels make them on the host. Here `StatelessRandomGetKeyCounter`, which
//! `tf.random` uses, makes them on the device: Keras keeps the seeds of its layers there, and a
//! model would wait for the device at each dropout.

use super::distribution::{Bounds, Distribution, StateSource, fill};
use super::inputs;
use super::philox::Generator;
use crate::device::{Binding, Grid, declare_program};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::{Raw, Shader};
use crate::tensor::HostTensor;

/// The op of the first version, the op of the second version, and the distribution.
const OPS: &[(&str, &str, Distribution)] = &[
    ("StatelessRandomUniform", "StatelessRandomUniformV2", Distribution::Uniform),
    ("StatelessRandomNormal", "StatelessRandomNormalV2", Distribution::Normal),
    ("StatelessTruncatedNormal", "StatelessTruncatedNormalV2", Distribution::TruncatedNormal),
    ("StatelessRandomUniformInt", "StatelessRandomUniformIntV2", Distribution::UniformInt),
    (
        "StatelessRandomUniformFullInt",
        "StatelessRandomUniformFullIntV2",
        Distribution::UniformFullInt,
    ),
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
    registry.op("StatelessRandomGetKeyCounter").kernel(|_| Ok(GetKeyCounter));
    // An op with int32 numbers both on the host (`alg`) and on the device makes TensorFlow's eager
    // mode crash.
    registry
        .op("StatelessRandomGetKeyCounterAlg")
        .host(&["seed", "key", "counter", "alg"])
        .kernel(|_| Ok(GetKeyCounterAlg));
    registry.op("StatelessRandomGetAlg").host(&["alg"]).kernel(|_: &dyn Attrs| Ok(GetAlg));
}

/// Inputs: shape, seed[, minval, maxval].
struct Seeded {
    distribution: Distribution,
    dtype: DType,
}

impl Kernel for Seeded {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let dims = inputs::shape(ctx, 0)?;
        let seed = inputs::seed(ctx, 1)?;
        let Some(output) = ctx.some_output(0, self.dtype, &dims)? else { return Ok(()) };
        let bounds = bounds_for(self.distribution, ctx, 2)?;
        fill(
            ctx.device(),
            &output,
            self.distribution,
            bounds,
            StateSource::Host(Generator::scrambled(seed)),
        )
    }
}

/// Inputs: shape, key, counter, alg[, minval, maxval].
struct Keyed {
    distribution: Distribution,
    dtype: DType,
}

impl Kernel for Keyed {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let [key, counter] = inputs::keyed(ctx)?;
        let dims = inputs::shape(ctx, 0)?;
        let Some(output) = ctx.some_output(0, self.dtype, &dims)? else { return Ok(()) };
        let bounds = bounds_for(self.distribution, ctx, 4)?;
        let source = StateSource::Device { counter: &counter, key: &key };
        fill(ctx.device(), &output, self.distribution, bounds, source)
    }
}

/// The bounds at input `i`, if the distribution has any.
fn bounds_for(distribution: Distribution, ctx: &mut dyn OpContext, i: usize) -> Result<Bounds> {
    if distribution == Distribution::UniformInt {
        inputs::bounds(ctx, i)
    } else {
        Ok(Bounds::default())
    }
}

fn philox_id() -> HostTensor {
    HostTensor::i32(&[], &[1])
}

struct GetKeyCounterAlg;

impl Kernel for GetKeyCounterAlg {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let generator = Generator::scrambled(inputs::seed(ctx, 0)?);
        ctx.host_output(0, &HostTensor::of(DType::U64, &[1], &[generator.key_u64()]))?;
        ctx.host_output(1, &HostTensor::of(DType::U64, &[2], &generator.counter_u64s()))?;
        ctx.host_output(2, &philox_id())
    }
}

struct GetKeyCounter;

impl Kernel for GetKeyCounter {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let seed = ctx.input(0)?;
        require!(
            seed.dims[..] == [2],
            "seed must have shape [2], not {}",
            inputs::text(&seed.dims)
        );
        let (key, counter) = (ctx.output(0, DType::U64, &[1])?, ctx.output(1, DType::U64, &[2])?);
        let [of_seed, key, counter] = [&seed, &key, &counter].map(|t| Binding::raw(t, 4));
        let call = KeyCounter { seed: of_seed, key, counter };
        call.enqueue(ctx.device(), &KeyCounter::of(seed.dtype), Grid([1, 1, 1]))
    }
}

declare_program! {
    /// Makes a key and a counter of seeds of type `dtype`.
    struct KeyCounter = "random key and counter"(dtype: DType);
    bindings { seed: Raw("u32", 4), key: Raw("u32", 4), counter: Raw("u32", 4) }
    params {}
}

impl KeyCounter {
    fn shader(dtype: DType) -> Shader {
        // An int32 has the same effect as the int64 of the same value.
        let seeds = match dtype {
            DType::I32 => {
                "vec4<u32>(seed[s], u32(bitcast<i32>(seed[s]) >> 31u), seed[s + 1u], \
                 u32(bitcast<i32>(seed[s + 1u]) >> 31u))"
            }
            _ => "vec4<u32>(seed[s], seed[s + 1u], seed[s + 2u], seed[s + 3u])",
        };
        Self::declare("random key and counter", dtype)
            .workgroup([1, 1, 1])
            .define("SEEDS", seeds)
            .body(include_str!("../../../shaders/random/key_counter.wgsl"))
    }
}

/// The shader variants of this module's ops beside the distributions'.
pub fn shaders() -> Vec<Shader> {
    [DType::I32, DType::I64].map(KeyCounter::shader).into()
}

struct GetAlg;

impl Kernel for GetAlg {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        ctx.host_output(0, &philox_id())
    }
}
