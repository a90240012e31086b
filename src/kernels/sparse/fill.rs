//! SparseFillEmptyRows and its gradient: like RaggedFillEmptyRows, with coordinates besides the
//! row.

use super::Compute;
use super::ragged::{SUMMED, TYPES, fill_empty_rows_grad, fill_rows};
use crate::device::{Grid, declare_program};
use crate::dtype::DType::*;
use crate::error::Result;
use crate::kernels::movement::shape;
use crate::kernels::movement::walk::copy_strided;
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::layout::Iteration;
use crate::require;
use crate::shader::Shader;

/// Registers the ops.
pub fn register(registry: &mut Registry) {
    let fill = registry.op("SparseFillEmptyRows").types("T", TYPES).host(&["dense_shape"]);
    fill.note("waits for the device, for the number of empty rows decides the outputs' extents")
        .kernel(|_| Ok(fill_empty_rows as Compute));
    registry
        .op("SparseFillEmptyRowsGrad")
        .types("T", SUMMED)
        .kernel(|_| Ok(fill_empty_rows_grad as Compute));
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    vec![FillRows::shader()]
}

/// Inputs indices (0), values (1), dense_shape (2, host) and default_value (3). Waits for the
/// device.
fn fill_empty_rows(ctx: &mut dyn OpContext) -> Result<()> {
    let (indices, values, default) = (ctx.input(0)?, ctx.input(1)?, ctx.input(3)?);
    let dense = ctx.host_input(2)?;
    require!(dense.dims.len() == 1, "dense_shape must be a vector, saw: {}", shape(&dense.dims));
    require!(indices.rank() == 2, "indices must be a matrix, saw: {}", shape(&indices.dims));
    require!(values.rank() == 1, "values must be a vector, saw: {}", shape(&values.dims));
    let (n, rank) = (indices.dims[0], indices.dims[1]);
    require!(
        n == values.len(),
        "The length of `values` ({}) must match the first dimension of `indices` ({n}).",
        values.len()
    );
    require!(default.rank() == 0, "default_value must be a scalar, saw: {}", shape(&default.dims));
    require!(dense.dims[0] != 0, "Dense shape cannot be empty.");
    require!(rank > 0, "indices must have a column, saw: {}", shape(&indices.dims));
    let rows = dense.to_i64()?[0];
    require!(rows >= 0, "Expected shape dimensions to be non-negative, got {rows}");
    let rows = rows as usize;
    if rows == 0 {
        require!(
            n == 0,
            "Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = {n}"
        );
        ctx.output(0, I64, &[0, rank])?;
        ctx.output(1, values.dtype, &[0])?;
        ctx.output(2, Bool, &[0])?;
        ctx.output(3, I64, &[0])?;
        return Ok(());
    }
    let rowids = ctx.temp(I64, &[n])?;
    let column = Iteration::over(&[n]).operand(&[rank as i64], 0).operand(&[1], 0);
    copy_strided(ctx.device(), &column, &indices, &rowids)?;
    let filled = fill_rows(ctx, &rowids, &values, &default, rows, false)?;
    let out = ctx.output(0, I64, &[filled.places.len(), rank])?;
    let device = ctx.device();
    device.check_extent(indices.len())?;
    FillRows {
        indices: (&indices).into(),
        places: (&filled.places).into(),
        rowids: (&filled.rowids).into(),
        out: (&out).into(),
        count: device.check_extent(out.len())?,
        rank,
        values: n,
    }
    .enqueue(device, &FillRows::of(), Grid::map(out.len(), I64))
}

declare_program! {
    /// A value's own coordinates, or those of the first element of its row.
    struct FillRows = "sparse fill rows"();
    bindings { indices: I64, places: U32, rowids: I64, out: I64 }
    params { count: u32, rank: usize, values: usize }
    shader "sparse fill rows" =>
        .body(
        "fn value(t: u32) -> i64 {\n    let i = t / p.rank;\n    let d = t % p.rank;\n    if \
         d == 0u {\n        return load_rowids(i);\n    }\n    let at = load_places(i);\n    \
         if at == p.values {\n        return 0li;\n    }\n    return load_indices(at * p.rank \
         + d);\n}",
        )
        .map("out")
}
