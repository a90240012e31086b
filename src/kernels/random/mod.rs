//! Random numbers, bit for bit those of TensorFlow's CPU kernels for the same seeds: uniform floats
//! and all integers exactly, normal numbers within a few units in the last place, since logarithm,
//! sine and square root round differently everywhere.
//!
//! TensorFlow's GPU kernels draw the same numbers, except truncated normal ones, where they give
//! each thread a stream of its own and so depend on the size of the GPU. Here truncated normal
//! numbers are also those of the CPU. Normal numbers between bounds differ from TensorFlow's, but
//! have the same distribution ([`bounded_normal`]).

mod binomial;
mod bounded_normal;
mod distribution;
mod gamma;
mod inputs;
mod multinomial;
pub mod philox;
mod stateful;
mod stateless;
mod stochastic_cast;
mod variable;

use crate::kernels::registry::Registry;
use crate::shader::Shader;
pub(crate) use distribution::{Bounds, Distribution, StateSource, fill};
pub(crate) use philox::Generator;

/// Samples that a stateful op takes off its stream for each output, however many the distribution
/// needs.
pub(crate) const SAMPLES_PER_OUTPUT: u64 = 256;

/// Adds the family's ops.
pub fn register(registry: &mut Registry) {
    stateless::register(registry);
    stateful::register(registry);
    variable::register(registry);
    binomial::register(registry);
    bounded_normal::register(registry);
    multinomial::register(registry);
    gamma::register(registry);
    stochastic_cast::register(registry);
}

/// The family's shader variants.
pub fn shaders() -> Vec<Shader> {
    let mut shaders = multinomial::shaders();
    shaders.push(distribution::Advance::shader());
    shaders.extend(stateless::shaders());
    shaders.extend(gamma::shaders());
    shaders.extend(bounded_normal::shaders());
    shaders.extend(stochastic_cast::shaders());
    for (distribution, types) in Distribution::ALL {
        for &dtype in types {
            for aligned in [false, true] {
                for [on_device, int64] in [[false; 2], [true; 2]] {
                    let shader = distribution::RandomNumbers::shader;
                    shaders.push(shader(distribution, dtype, on_device, aligned, int64));
                }
            }
        }
    }
    shaders
}
