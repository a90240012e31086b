//! Matrix products that compute what nodes beside them would: `_WgpuFusedMatMulWithSums` the sums
//! of its right operand's columns, as the gradient of a bias is beside that of its weights.
//!
//! Epilogues are those of [`super::contraction`].

use crate::dtype::{DType, types};
use crate::error::Result;
use crate::kernels::contract::epilogue::Epilogue;
use crate::kernels::contract::summed;
use crate::kernels::definition::{OpDefinition, PartialShape, ShapeInputs};
use crate::kernels::fused::contraction::{Fused, matmul_shape};
use crate::kernels::matmul::MatMul;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::reduce::plan::groups;
use crate::kernels::reduce::program::reduce;
use crate::kernels::reduce::table::Reduction;
use crate::kernels::registry::Registry;
use crate::require;
use crate::tensor::shape_text;

/// The product of two matrices and the sums of the right one's columns.
pub const WITH_SUMS: &str = "_WgpuFusedMatMulWithSums";

/// Element types, of operands and results.
const TYPES: &[DType] = types::FLOATS;

/// The ops.
pub const DEFINITIONS: &[OpDefinition] = &[OpDefinition {
    name: WITH_SUMS,
    inputs: &["x: T", "y: T", "extra: T_extra"],
    outputs: &["output: T_out", "sums: T"],
    attrs: &[
        "T: {float, half, bfloat16, double}",
        "T_extra: list(type) >= 0",
        "T_out: {float, half, bfloat16, double}",
        "expression: string",
        "constants: list(float)",
        "adj_x: bool = false",
    ],
    stateful: false,
    shape: with_sums_shape,
}];

/// Adds the ops.
pub fn register(r: &mut Registry) {
    r.op(WITH_SUMS).types("T", TYPES).types("T_out", TYPES).kernel(|attrs| {
        let base = MatMul::matrices(attrs.bool("adj_x")?, false);
        Ok(WithSums { product: fused(attrs, WITH_SUMS, base)? })
    });
}

fn fused(attrs: &dyn Attrs, op: &'static str, base: MatMul) -> Result<Fused> {
    let epilogue = Epilogue::read(attrs, attrs.dtype("T")?)?;
    Ok(Fused { op, base: Box::new(base), epilogue })
}

struct WithSums {
    product: Fused,
}

impl Kernel for WithSums {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let extras = (2..ctx.num_inputs()).map(|i| ctx.input(i)).collect::<Result<Vec<_>>>()?;
        let operands = [ctx.input(0)?, ctx.input(1)?];
        let right = &operands[1];
        require!(right.rank() == 2, "{WITH_SUMS} takes matrices: {}", shape_text(&right.dims));
        let plan = self.product.start(ctx, &operands, &extras, 0)?;
        let sums = ctx.output(1, right.dtype, &right.dims[1..])?;
        let done = match plan {
            Some(plan) => summed::enqueue(ctx, plan, &sums)?,
            None => false,
        };
        if done {
            return Ok(());
        }
        let columns = groups(&right.dims, &[true, false]);
        reduce(ctx, Reduction::of("Sum"), right, &columns, &sums)
    }
}

/// The product's, and an element for each column of the right operand.
fn with_sums_shape(inputs: &ShapeInputs<'_>) -> Result<Vec<PartialShape>> {
    let product = matmul_shape(inputs)?;
    let right = inputs.shapes.get(1).cloned().flatten();
    let columns = right.and_then(|dims| dims.last().copied()).flatten();
    Ok(vec![product[0].clone(), Some(vec![columns])])
}
