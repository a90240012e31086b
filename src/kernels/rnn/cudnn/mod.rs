//! Recurrent networks: CudnnRNN and what belongs to it, by these names alone. No cuDNN is behind
//! them.
//!
//! A layer in one direction is one product for the inputs of all steps, then its steps ([`steps`]),
//! then, for gradients, one product each for the input, its weights and the recurrent weights.
//! Work is done in the accumulator's type of the tensors' type.

mod backward;
mod canonical;
mod extents;
mod forward;
pub mod model;
mod pieces;
mod product;
mod reserve;
mod software;
mod steps;

use crate::dtype::types;
use crate::kernels::registry::Registry;
use crate::shader::Shader;

/// Which generation of the op a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// CudnnRNN.
    V1,
    /// CudnnRNNV2: a further output in host memory, which has nothing to say here.
    V2,
    /// CudnnRNNV3: lengths of the sequences, and sequences before steps.
    V3,
}

/// Adds the ops.
pub fn register(r: &mut Registry) {
    for (op, host, version) in [
        ("CudnnRNN", &[][..], Version::V1),
        ("CudnnRNNV2", &["host_reserved"], Version::V2),
        ("CudnnRNNV3", &["sequence_lengths", "host_reserved"], Version::V3),
    ] {
        r.op(op)
            .types("T", types::FLOATS)
            .host(host)
            .kernel(move |a| forward::Forward::new(a, version));
    }
    for (op, host, version) in [
        ("CudnnRNNBackprop", &[][..], Version::V1),
        ("CudnnRNNBackpropV2", &["host_reserved"], Version::V2),
        ("CudnnRNNBackpropV3", &["sequence_lengths", "host_reserved"], Version::V3),
    ] {
        r.op(op)
            .types("T", types::FLOATS)
            .host(host)
            .kernel(move |a| backward::Backward::new(a, version));
    }
    canonical::register(r);
}

/// Every shader.
pub fn shaders() -> Vec<Shader> {
    let mut all = steps::shaders();
    all.extend(pieces::shaders());
    all
}
