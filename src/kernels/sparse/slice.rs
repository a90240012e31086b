//! SparseSlice, its gradient, and SparseSplit: rows are distributed to outputs by their
//! coordinates, and keep their order.

use super::coordinates::shift;
use super::{Compute, check, dense_shape, shape_output, upload};
use crate::device::{Grid, declare_program};
use crate::dtype::{
    DType::{self, *},
    types,
};
use crate::error::Result;
use crate::kernels::gather::index::Indices;
use crate::kernels::gather::rows::Gather;
use crate::kernels::movement::{MOVED, shape};
use crate::kernels::op::{OpContext, OpContextExt};
use crate::kernels::registry::Registry;
use crate::kernels::sort::buckets::Buckets;
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Dims, Tensor};

const SUMMED: &[DType] = types::NUMBERS;

/// Registers the ops.
pub fn register(registry: &mut Registry) {
    const WAITS: &str =
        "waits for the device, for the number of elements is an extent of the outputs";
    // Neither op takes int32: see SparseConcat.
    let slice = registry.op("SparseSlice").types("T", MOVED).host(&[
        "shape",
        "start",
        "size",
        "output_shape",
    ]);
    slice.note(WAITS).kernel(|_| Ok(slice_kernel as Compute));
    registry.op("SparseSliceGrad").types("T", SUMMED).kernel(|_| Ok(gradient as Compute));
    let split =
        registry.op("SparseSplit").types("T", MOVED).host(&["split_dim", "shape", "output_shape"]);
    split.note(WAITS).kernel(|attrs| {
        let n = attrs.int("num_split")? as usize;
        Ok(move |ctx: &mut dyn OpContext| split_kernel(ctx, n))
    });
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    vec![MarkInside::shader(), PartOfRow::shader(), FindRow::shader()]
}

/// Inputs indices (0), values (1), shape (2, host), start (3, host) and size (4, host). Waits for
/// the device.
fn slice_kernel(ctx: &mut dyn OpContext) -> Result<()> {
    let (indices, values) = (ctx.input(0)?, ctx.input(1)?);
    let dims = dense_shape(ctx, 2)?;
    let rank = dims.len();
    check(&indices, &values, rank)?;
    let mut ranges = Vec::new();
    for (i, name) in [(3, "start"), (4, "size")] {
        let given = ctx.host_input(i)?;
        require!(
            given.dims.len() == 1,
            "Input {name} should be a vector but received shape {}",
            shape(&given.dims)
        );
        require!(
            given.dims[0] == rank,
            "Expected {name} to be a vector of length {rank} but got length {}",
            given.dims[0]
        );
        ranges.push(given.to_i64()?);
    }
    let mut out = Dims::new();
    for d in 0..rank {
        let (extent, start, size) = (dims[d] as i64, ranges[0][d], ranges[1][d]);
        require!(size >= 0, "Expected a non-negative size, got {size}");
        out.push(if start < extent { size.min(extent.saturating_sub(start)) as usize } else { 0 });
    }
    shape_output(ctx, 2, &out)?;
    let starts = ranges[0].clone();
    let ends = starts.iter().zip(&ranges[1]).map(|(start, size)| start.saturating_add(*size));
    let table = upload(ctx, &starts.iter().copied().chain(ends).collect::<Vec<_>>())?;
    let n = values.len();
    let parts = ctx.temp(I32, &[n])?;
    if n > 0 {
        ctx.device().check_extent(indices.len())?;
        MarkInside {
            indices: (&indices).into(),
            table: (&table).into(),
            parts: (&parts).into(),
            count: n,
            rank,
        }
        .enqueue(ctx.device(), &MarkInside::of(), Grid::map(n, I32))?;
    }
    deal(ctx, &indices, &values, &parts, &[starts])
}

/// Inputs split_dim (0, host), indices (1), values (2) and shape (3, host). Waits for the device.
/// Coordinates out of range belong to no part.
fn split_kernel(ctx: &mut dyn OpContext, n: usize) -> Result<()> {
    let given = ctx.host_input(0)?.dims;
    require!(
        given.is_empty(),
        "Input axis should be a scalar but received shape {}",
        shape(&given)
    );
    let axis = ctx.host_i64(0, "split_dim")?;
    let (indices, values) = (ctx.input(1)?, ctx.input(2)?);
    let dims = dense_shape(ctx, 3)?;
    let rank = dims.len();
    check(&indices, &values, rank)?;
    let canonical = if axis < 0 { axis + rank as i64 } else { axis };
    require!(
        (0..rank as i64).contains(&canonical),
        "Input axis should be in range [-{rank}, {rank}), got {axis}"
    );
    let axis = canonical as usize;
    let extent = dims[axis];
    require!(
        (1..=extent).contains(&n),
        "Input num_split should be between 1 and the splitting dimension size ({extent}), got {n}"
    );
    // The first parts take one more coordinate if the extent does not divide evenly.
    let (size, more) = (extent / n, extent % n);
    let mut starts = Vec::new();
    for i in 0..n {
        let mut out = dims.clone();
        out[axis] = size + usize::from(i < more);
        shape_output(ctx, 2 * n + i, &out)?;
        let mut start = vec![0; rank];
        start[axis] = (i * size + i.min(more)) as i64;
        starts.push(start);
    }
    let table = upload(ctx, &[size as i64, more as i64, extent as i64])?;
    let count = values.len();
    let parts = ctx.temp(I32, &[count])?;
    if count > 0 {
        ctx.device().check_extent(indices.len())?;
        PartOfRow {
            indices: (&indices).into(),
            table: (&table).into(),
            parts: (&parts).into(),
            count,
            rank,
            axis,
        }
        .enqueue(ctx.device(), &PartOfRow::of(), Grid::map(count, I32))?;
    }
    deal(ctx, &indices, &values, &parts, &starts)
}

/// Sets the outputs indices and values, one pair for each of `starts`, to the rows that `parts`
/// assigns to that pair, with coordinates counted from its start. Waits for the device.
fn deal(
    ctx: &mut dyn OpContext,
    indices: &Tensor,
    values: &Tensor,
    parts: &Tensor,
    starts: &[Vec<i64>],
) -> Result<()> {
    let (n, rank) = (starts.len(), indices.dims[1]);
    if parts.is_empty() {
        for i in 0..n {
            ctx.output(i, I64, &[0, rank])?;
            ctx.output(n + i, values.dtype, &[0])?;
        }
        return Ok(());
    }
    let table = upload(
        ctx,
        &starts.iter().flatten().map(|start| start.wrapping_neg()).collect::<Vec<_>>(),
    )?;
    let buckets = Buckets::of(ctx, parts, n)?;
    let bounds = buckets.host_bounds(ctx)?;
    for (i, bound) in bounds.windows(2).enumerate() {
        let count = (bound[1] - bound[0]) as usize;
        let out_indices = ctx.output(i, I64, &[count, rank])?;
        let out_values = ctx.output(n + i, values.dtype, &[count])?;
        if count == 0 {
            continue;
        }
        let positions =
            Tensor::new(I32, &[count], buckets.positions.address + 4 * u64::from(bound[0]));
        let places = Indices::new(&positions, &[values.len()])?;
        let rows = ctx.temp(I64, &[count, rank])?;
        let gather = Gather { batch: 1, outer: 1, count, inner: rank };
        gather.enqueue(ctx.device(), indices, &places, &rows)?;
        shift(ctx, &rows, &table, i * rank, &out_indices)?;
        Gather { inner: 1, ..gather }.enqueue(ctx.device(), values, &places, &out_values)?;
    }
    Ok(())
}

/// Inputs backprop_val_grad (0), input_indices (1), input_start (2) and output_indices (3), all on
/// the device. Rows of the input that the ordered output lacks get zeros, as on TensorFlow's GPUs.
fn gradient(ctx: &mut dyn OpContext) -> Result<()> {
    let (grad, indices, start, found) =
        (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?, ctx.input(3)?);
    require!(
        indices.rank() == 2 && found.rank() == 2,
        "Input indices should be matrices but received shapes: {} and {}",
        shape(&indices.dims),
        shape(&found.dims)
    );
    require!(
        grad.rank() == 1,
        "Input backprop_val_grad should be a vector but received shape: {}",
        shape(&grad.dims)
    );
    let (n, rank, m) = (indices.dims[0], indices.dims[1], found.dims[0]);
    require!(
        rank == found.dims[1],
        "The input and output should have the same ndims: got: {rank} and {}",
        found.dims[1]
    );
    require!(
        m <= n,
        "# rows of output_indices should be not greater than of input_indices, got {m} and {n}"
    );
    require!(
        grad.len() == m,
        "# elements of backprop_val_grad and # rows of output_indices should match (#nnz of sum): \
         got {} and {m}",
        grad.len()
    );
    require!(
        start.rank() == 1,
        "Input start should be a vector but received shape {}",
        shape(&start.dims)
    );
    require!(
        start.len() == rank,
        "Expected input_start to be a vector of length {rank} but got length {}",
        start.len()
    );
    let out = ctx.output(0, grad.dtype, &[n])?;
    if n == 0 {
        return Ok(());
    }
    let places = ctx.temp(I32, &[n])?;
    ctx.device().check_extent(indices.len())?;
    FindRow {
        indices: (&indices).into(),
        start: (&start).into(),
        found: (&found).into(),
        places: (&places).into(),
        count: n,
        rank,
        rows: m,
    }
    .enqueue(ctx.device(), &FindRow::of(), Grid::map(n, I32))?;
    let gather = Gather { batch: 1, outer: 1, count: n, inner: 1 };
    gather.enqueue(ctx.device(), &grad, &Indices::new(&places, &[m])?, &out)
}

declare_program! {
    /// 0 for rows between the first and the second half of `table`, -1 for all others.
    struct MarkInside = "sparse inside"();
    bindings { indices: I64, table: I64, parts: I32 }
    params { count: usize, rank: usize }
    shader "sparse inside" =>
        .body(
        "fn value(i: u32) -> i32 {\n    for (var d = 0u; d < p.rank; d += 1u) {\n        let \
         c = load_indices(i * p.rank + d);\n        if c < load_table(d) || c >= \
         load_table(p.rank + d) {\n            return -1;\n        }\n    }\n    return 0;\n}",
        )
        .map("parts")
}

declare_program! {
    /// The part of each row; `table` holds the size of a part, the number of parts that have one
    /// more, and the extent.
    struct PartOfRow = "sparse part"();
    bindings { indices: I64, table: I64, parts: I32 }
    params { count: usize, rank: usize, axis: usize }
    shader "sparse part" =>
        .body(
        "fn value(i: u32) -> i32 {\n    let c = load_indices(i * p.rank + p.axis);\n    let \
         size = load_table(0u);\n    let more = load_table(1u);\n    if c < 0li || c >= \
         load_table(2u) {\n        return -1;\n    }\n    let head = (size + 1li) * more;\n    \
         if c < head {\n        return i32(c / (size + 1li));\n    }\n    return i32(more + \
         (c - head) / size);\n}",
        )
        .map("parts")
}

declare_program! {
    /// The place among the ordered rows `found` of each row of `indices` less `start`, or -1.
    struct FindRow = "sparse find"();
    bindings { indices: I64, start: I64, found: I64, places: I32 }
    params { count: usize, rank: usize, rows: usize }
    shader "sparse find" =>
        .body(
            "// -1, 0 or 1 as row `at` of found is before, at or after row `i`.
fn compared(at: u32, i: u32) -> i32 {
    for (var d = 0u; d < p.rank; d += 1u) {
        let a = load_found(at * p.rank + d) + load_start(d);
        let b = load_indices(i * p.rank + d);
        if a < b {
        return -1;
        }
        if a > b {
        return 1;
        }
    }
    return 0;
}

fn value(i: u32) -> i32 {
    var low = 0u;
    var high = p.rows;
    while low < high {
        let middle = low + (high - low) / 2u;
        if compared(middle, i) < 0 {
        low = middle + 1u;
        } else {
        high = middle;
        }
    }
    if low < p.rows && compared(low, i) == 0 {
        return i32(low);
    }
    return -1;
}",
        )
        .map("places")
}
