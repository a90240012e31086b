//! Recurrent networks: CudnnRNN and its related ops. Only the names are cuDNN's; no cuDNN is behind
//! them. Layers of kinds that CudnnRNN cannot express are an op of ours ([`layer`]).
//!
//! A layer is one product for the inputs of all steps in each direction, then the steps of all
//! directions ([`steps`]), then, for gradients, in each direction one product each for the input,
//! its weights and the recurrent weights. All computation is in the accumulator's type of the
//! tensors' type. Where outputs are projected, the steps are still those of the units
//! ([`projection`]).

mod backward;
mod canonical;
mod ends;
mod extents;
mod forward;
pub mod layer;
pub mod model;
mod parameters;
mod pieces;
mod product;
mod projection;
mod reserve;
mod states;
mod steps;
mod text;

use crate::dtype::types;
use crate::error::Result;
use crate::kernels::op::Attrs;
use crate::kernels::registry::Registry;
use crate::shader::Shader;
use model::Model;

/// The generation of a node's op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// CudnnRNN.
    V1,
    /// CudnnRNNV2: it has a further output in host memory, which has no use here.
    V2,
    /// CudnnRNNV3: it has lengths of the sequences, and sequences before steps.
    V3,
    /// Our own op: one layer with lengths of the sequences, and the weights as Keras has them.
    Layer,
}

impl Version {
    /// Whether there are lengths of the sequences.
    const fn has_lengths(self) -> bool {
        matches!(self, Self::V3 | Self::Layer)
    }

    /// Whether there is an output in host memory.
    const fn has_host_output(self) -> bool {
        matches!(self, Self::V2 | Self::V3)
    }

    /// Whether steps come before sequences.
    fn time_major(self, attrs: &dyn Attrs) -> Result<bool> {
        match self {
            Self::V1 | Self::V2 => Ok(true),
            Self::V3 | Self::Layer => attrs.bool("time_major"),
        }
    }

    /// The model of the network.
    fn model(self, attrs: &dyn Attrs) -> Result<Model> {
        if self == Self::Layer { Model::of_layer(attrs) } else { Ok(Model::new(attrs)?.as_run()) }
    }
}

/// Adds the ops.
pub fn register(r: &mut Registry) {
    const LENGTHS: &[&str] = &["sequence_lengths"];
    for (op, host, version) in [
        (layer::NAME, LENGTHS, Version::Layer),
        ("CudnnRNN", &[], Version::V1),
        ("CudnnRNNV2", &["host_reserved"], Version::V2),
        ("CudnnRNNV3", &["sequence_lengths", "host_reserved"], Version::V3),
    ] {
        r.op(op)
            .types("T", types::FLOATS)
            .host(host)
            .kernel(move |a| forward::Forward::new(a, version));
    }
    for (op, host, version) in [
        (layer::GRAD, LENGTHS, Version::Layer),
        ("CudnnRNNBackprop", &[], Version::V1),
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
    let mut all = text::shaders();
    all.extend(pieces::shaders());
    all.extend(ends::shaders());
    all
}
