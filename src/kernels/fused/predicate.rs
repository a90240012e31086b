//! `_WgpuHostLogicalAnd`, `…Or`, `…Not`: the condition of a loop, computed in host memory, where
//! its operands are known and where it is needed.
//!
//! A loop's counter is int32 and lives in host memory, as does the result of a comparison with it;
//! the executor needs the loop's condition there, too. TensorFlow's LogicalAnd between them is a
//! kernel of the device: each step of the loop would send two bools to the device and wait for one
//! to come back.

use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::definition::{OpDefinition, PartialShape, ShapeInputs, broadcast};
use crate::kernels::fused::eval::index;
use crate::kernels::op::{Attrs, OpContext};
use crate::kernels::registry::Registry;
use crate::layout::{Iteration, broadcast_dims};
use crate::tensor::{Dims, HostTensor};

/// Each op, the op of TensorFlow that it replaces, and whether it has a second operand.
const OPS: &[(&str, &str, bool)] = &[
    ("_WgpuHostLogicalAnd", "LogicalAnd", true),
    ("_WgpuHostLogicalOr", "LogicalOr", true),
    ("_WgpuHostLogicalNot", "LogicalNot", false),
];

/// The docs' note on these ops.
const NOTE: &str = "on the host, for conditions of loops that are known there and needed there";

/// The op that computes on the host what `op` computes on the device.
pub fn on_host(op: &str) -> Option<&'static str> {
    OPS.iter().find(|(_, theirs, _)| *theirs == op).map(|(ours, ..)| *ours)
}

/// Whether `op` is one of these ops.
pub fn is_on_host(op: &str) -> bool {
    OPS.iter().any(|(ours, ..)| *ours == op)
}

const fn definition(name: &'static str, inputs: &'static [&'static str]) -> OpDefinition {
    OpDefinition { name, inputs, outputs: &["z: bool"], attrs: &[], stateful: false, shape }
}

/// The signatures of the ops.
pub const DEFINITIONS: &[OpDefinition] = &[
    definition(OPS[0].0, &["x: bool", "y: bool"]),
    definition(OPS[1].0, &["x: bool", "y: bool"]),
    definition(OPS[2].0, &["x: bool"]),
];

fn shape(inputs: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    Ok(vec![broadcast(inputs.shapes)?])
}

/// Adds the ops.
pub fn register(registry: &mut Registry) {
    for &(op, _, binary) in OPS {
        let arguments: &[&str] = if binary { &["x", "y", "z"] } else { &["x", "z"] };
        registry
            .op(op)
            .host(arguments)
            .note(NOTE)
            .kernel(move |_: &dyn Attrs| Ok(move |ctx: &mut dyn OpContext| compute(ctx, op)));
    }
}

fn compute(ctx: &mut dyn OpContext, op: &str) -> Result<()> {
    let inputs = (0..ctx.num_inputs()).map(|i| ctx.host_input(i)).collect::<Result<Vec<_>>>()?;
    let mut dims = Dims::new();
    for t in &inputs {
        dims = broadcast_dims(&dims, &t.dims)?;
    }
    let walk = inputs.iter().fold(Iteration::over(&dims), |walk, t| walk.broadcast(&t.dims));
    let value = |k: usize, i: usize| inputs[k].bytes[index(&walk, k, i)] != 0;
    let result = (0..dims.iter().product()).map(|i| {
        u8::from(match op {
            "_WgpuHostLogicalAnd" => value(0, i) && value(1, i),
            "_WgpuHostLogicalOr" => value(0, i) || value(1, i),
            _ => !value(0, i),
        })
    });
    let bytes = result.collect();
    ctx.host_output(0, &HostTensor { dtype: DType::Bool, dims, bytes })
}
