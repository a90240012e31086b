//! `_WgpuRegion`: many nodes of a graph as one op, so that TensorFlow's executor, its allocator and
//! its C API see one node.
//!
//! The op runs the kernels of its [`members`] in their order, each in a context of its own
//! ([`run`]). Members have no state and no outputs in host memory. Their tensors are temporaries of
//! the op, which are given back after their last reader, and in which a later member may write its
//! result. [`views`] has the members that only change a tensor's shape.

pub mod members;
mod run;
pub mod views;

use members::Members;
use run::Run;

use crate::error::Result;
use crate::kernels::definition::{OpDefinition, ShapeInputs};
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;

/// The op's name.
pub const OP: &str = "_WgpuRegion";

/// Its signature. Each of `nodes` is a NodeDef ([`members`]); `outputs` holds a node's number and
/// one of its ports for each output.
pub const DEFINITIONS: &[OpDefinition] = &[OpDefinition {
    name: OP,
    inputs: &["tensors: Ttensors", "host: Thost"],
    outputs: &["results: Tout"],
    attrs: &[
        "Ttensors: list(type) >= 0",
        "Thost: list(type) >= 0",
        "Tout: list(type) >= 1",
        "nodes: list(string) >= 1",
        "outputs: list(int) >= 2",
    ],
    stateful: false,
    shape: |_: &ShapeInputs<'_>| Ok(Vec::new()),
}];

/// Adds the op.
pub fn register(registry: &mut Registry) {
    registry.op(OP).host(&["host"]).kernel(|attrs: &dyn Attrs| Members::new(attrs));
}

impl Kernel for Members {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let mut run = Run::new(self);
        (0..self.all.len()).try_for_each(|at| run.member(ctx, at))?;
        run.finish(ctx)
    }
}
