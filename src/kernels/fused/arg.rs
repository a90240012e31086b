//! `_WgpuFusedArg`: an ArgMax or ArgMin of an expression's values, which are not stored.

use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::definition::OpDefinition;
use crate::kernels::expression::Expression;
use crate::kernels::fused::cost;
use crate::kernels::op::Attrs;
use crate::kernels::reduce::arg::values::Values;
pub use crate::kernels::reduce::arg::values::fits;
use crate::kernels::reduce::arg::{ARG_REDUCTIONS, Arg, ArgReduction, OUTPUTS, TYPES};
use crate::kernels::registry::Registry;
use crate::{invalid, require};

/// The op.
pub const OP: &str = "_WgpuFusedArg";

/// Its definition. `reduction` is the op that reduces the values. All tensors have one shape.
pub const DEFINITIONS: &[OpDefinition] = &[OpDefinition {
    name: OP,
    inputs: &["x: T_in", "dimension: int32"],
    outputs: &["output: output_type"],
    attrs: &[
        "T_in: list(type) >= 1",
        "output_type: {int32, int64}",
        "reduction: string",
        "expression: string",
        "constants: list(float)",
    ],
    stateful: false,
    // Shape functions do not see the dimension.
    shape: |_| Ok(Vec::new()),
}];

/// The arg-reduction of this name.
pub fn reduction(op: &str) -> Option<&'static ArgReduction> {
    ARG_REDUCTIONS.iter().find(|row| row.op == op)
}

/// Whether values of this type are compared.
pub fn compares(dtype: DType) -> bool {
    TYPES.contains(&dtype)
}

/// Registers the op.
pub fn register(r: &mut Registry) {
    r.op(OP).types("output_type", OUTPUTS).host(&["dimension"]).kernel(new);
}

fn new(attrs: &dyn Attrs) -> Result<Arg> {
    let name = attrs.string("reduction")?;
    let Some(row) = reduction(&name) else {
        invalid!("{OP}: {name:?} is no reduction to an index")
    };
    let expression: Expression = attrs.string("expression")?.parse()?;
    cost::check(cost::elementwise(cost::expression(&expression)))?;
    let (given, constants) = (attrs.dtypes("T_in")?, attrs.floats("constants")?);
    require!(given == expression.inputs(), "T_in is {given:?}, but the expression is {expression}");
    require!(
        constants.len() == expression.constants(),
        "{} constants for the {} parameters of {expression}",
        constants.len(),
        expression.constants()
    );
    Arg::new(row, attrs, Values::new(expression)?, constants.into())
}
