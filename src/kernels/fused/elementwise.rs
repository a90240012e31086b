//! `_WgpuFusedElementwise`: an expression over inputs that broadcast, with any number of outputs of the shape to which all inputs
//! broadcast.

use crate::error::Result;
use crate::kernels::definition::{OpDefinition, PartialShape, ShapeInputs, broadcast};

/// The op's name.
pub const OP: &str = "_WgpuFusedElementwise";

/// Largest number of inputs and outputs together: with a parameter buffer, eight bindings.
pub const MAX_BINDINGS: usize = 7;

/// The op.
pub const DEFINITIONS: &[OpDefinition] = &[OpDefinition {
    name: OP,
    inputs: &["x: T_in"],
    outputs: &["y: T_out"],
    attrs: &["T_in: list(type) >= 1", "T_out: list(type) >= 1", "expression: string", "constants: list(float)"],
    stateful: false,
    shape,
}];

/// Shape functions do not see how many outputs a node has; what is more than it has is ignored.
fn shape(inputs: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    Ok(vec![broadcast(inputs.shapes)?; MAX_BINDINGS])
}
