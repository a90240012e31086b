//! SparseReshape, SparseReorder and SparseConcat: coordinates by their position in the dense
//! tensor.

use super::{Compute, check, dense_shape, shape_output, upload};
use crate::device::{Grid, declare_program};
use crate::dtype::{
    DType::{self, *},
    types, union,
};
use crate::error::Result;
use crate::kernels::gather::index::Indices;
use crate::kernels::gather::rows::Gather;
use crate::kernels::movement::{MOVED, checked_product, shape};
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::kernels::sort::keys::order;
use crate::layout::dense_strides;
use crate::require;
use crate::shader::Shader;
use crate::tensor::{Dims, Tensor};

const ORDERED: &[DType] = union!(types::REALS, &[Bool]);

/// Registers the ops.
pub fn register(registry: &mut Registry) {
    let reshape = registry.op("SparseReshape").host(&["input_shape", "new_shape", "output_shape"]);
    reshape.kernel(|_| Ok(reshape_kernel as Compute));
    registry.op("SparseReorder").types("T", ORDERED).kernel(|_| Ok(reorder_kernel as Compute));
    // The op does not take int32, as it does on TensorFlow's GPU: eager mode keeps such tensors in
    // host memory and crashes on the mix of arguments.
    registry.op("SparseConcat").types("T", MOVED).host(&["shapes", "output_shape"]).kernel(
        |attrs| {
            let (axis, n) = (attrs.int("concat_dim")?, attrs.int("N")? as usize);
            Ok(move |ctx: &mut dyn OpContext| concat(ctx, axis, n))
        },
    );
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    vec![CoordinateKeys::shader(), ReshapeCoordinates::shader(), ShiftCoordinates::shader()]
}

/// The extents that the vector `requested` names for a tensor of `dims`; one may be -1.
fn resolve(dims: &Dims, requested: &[i64]) -> Result<Dims> {
    let size = checked_product(dims)?;
    let mut out = Dims::new();
    let mut unknown = None;
    for (d, n) in requested.iter().enumerate() {
        if *n == -1 {
            if let Some(first) = unknown {
                crate::invalid!("only one output dimension may be -1, not both {first} and {d}");
            }
            unknown = Some(d);
            out.push(1);
        } else {
            require!(*n >= 0, "size {d} must be non-negative, not {n}");
            out.push(*n as usize);
        }
    }
    let product = checked_product(&out)?;
    if let Some(d) = unknown {
        require!(
            product > 0,
            "reshape cannot infer the missing input size for an empty tensor unless all specified \
             input sizes are non-zero"
        );
        require!(
            size.is_multiple_of(product),
            "Input to reshape is a SparseTensor with {size} dense values, but the requested shape \
             requires a multiple of {product}. input_shape={} output_shape={}",
            shape(dims),
            shape(&out)
        );
        out[d] = size / product;
    }
    require!(
        checked_product(&out)? == size,
        "Input to reshape is a tensor with {size} dense values, but the requested shape has {}. \
         input_shape={} output_shape={}",
        checked_product(&out)?,
        shape(dims),
        shape(&out)
    );
    Ok(out)
}

/// Inputs input_indices (0), input_shape (1, host) and new_shape (2, host).
fn reshape_kernel(ctx: &mut dyn OpContext) -> Result<()> {
    let indices = ctx.input(0)?;
    require!(
        indices.rank() == 2,
        "Input indices should be a matrix but received shape {}",
        shape(&indices.dims)
    );
    let requested = ctx.host_input(2)?;
    require!(
        requested.dims.len() == 1,
        "Target shape should be a vector but received shape {}",
        shape(&requested.dims)
    );
    let dims = dense_shape(ctx, 1)?;
    let (n, rank) = (indices.dims[0], indices.dims[1]);
    require!(rank == dims.len(), "Input tensor rank must match input shape length.");
    let out_dims = resolve(&dims, &requested.to_i64()?)?;
    shape_output(ctx, 1, &out_dims)?;
    if out_dims == dims {
        return ctx.forward_input(0, 0, &indices.dims);
    }
    require!(
        n == 0 || checked_product(&dims)? > 0,
        "Input tensor has {n} non zero elements but input shape ({}) or output shape ({}) is empty",
        shape(&dims),
        shape(&out_dims)
    );
    let Some(out) = ctx.some_output(0, I64, &[n, out_dims.len()])? else { return Ok(()) };
    let extents = dims.iter().map(|d| *d as i64);
    let table = upload(ctx, &extents.chain(dense_strides(&out_dims)).collect::<Vec<_>>())?;
    let device = ctx.device();
    device.check_extent(indices.len())?;
    ReshapeCoordinates {
        indices: (&indices).into(),
        dims: (&table).into(),
        out: (&out).into(),
        count: device.check_extent(out.len())?,
        rank,
        out_rank: out_dims.len(),
    }
    .enqueue(device, &ReshapeCoordinates::of(), Grid::map(out.len(), I64))
}

/// Inputs input_indices (0), input_values (1) and input_shape (2, on the device, so its values are
/// not checked).
fn reorder_kernel(ctx: &mut dyn OpContext) -> Result<()> {
    let (indices, values, dims) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
    require!(
        dims.rank() == 1,
        "Input shape should be a vector but received shape {}",
        shape(&dims.dims)
    );
    check(&indices, &values, dims.len())?;
    reorder(ctx, &indices, &values, &dims)
}

/// Sets outputs 0 and 1 to the rows of `indices` and the `values` in row-major order of a tensor of
/// extents `dims`; equal rows keep their order.
fn reorder(
    ctx: &mut dyn OpContext,
    indices: &Tensor,
    values: &Tensor,
    dims: &Tensor,
) -> Result<()> {
    let (n, rank) = (indices.dims[0], indices.dims[1]);
    let out_indices = ctx.output(0, I64, &[n, rank])?;
    let out_values = ctx.output(1, values.dtype, &[n])?;
    if n == 0 {
        return Ok(());
    }
    ctx.device().check_extent(indices.len())?;
    let keys = ctx.temp(I64, &[n])?;
    CoordinateKeys {
        indices: indices.into(),
        dims: dims.into(),
        keys: (&keys).into(),
        count: n,
        rank,
    }
    .enqueue(ctx.device(), &CoordinateKeys::of(), Grid::map(n, I64))?;
    let permutation = Indices::new(&order(ctx, &keys, n, false)?.values, &[n])?;
    let rows = Gather { batch: 1, outer: 1, count: n, inner: rank };
    rows.enqueue(ctx.device(), indices, &permutation, &out_indices)?;
    Gather { inner: 1, ..rows }.enqueue(ctx.device(), values, &permutation, &out_values)
}

/// Inputs indices, values and shapes (host), `n` of each.
fn concat(ctx: &mut dyn OpContext, axis: i64, n: usize) -> Result<()> {
    let indices = (0..n).map(|i| ctx.input(i)).collect::<Result<Vec<_>>>()?;
    for (i, t) in indices.iter().enumerate() {
        let dims = shape(&t.dims);
        require!(
            t.rank() == 2,
            "Input indices should be a matrix but received shape {dims} at position {i}"
        );
    }
    let values = (n..2 * n).map(|i| ctx.input(i)).collect::<Result<Vec<_>>>()?;
    for (i, t) in values.iter().enumerate() {
        let dims = shape(&t.dims);
        require!(
            t.rank() == 1,
            "Input values should be a vector but received shape {dims} at position {i}"
        );
        require!(
            t.len() == indices[i].dims[0],
            "indices and values rows (indexing dimension) must match. (indices = {}, values = {})",
            indices[i].dims[0],
            t.len()
        );
    }
    let mut shapes = Vec::new();
    for i in 0..n {
        let given = ctx.host_input(2 * n + i)?.dims;
        require!(
            given.len() == 1,
            "Input shapes should be a vector but received shape {} at position {i}",
            shape(&given)
        );
        shapes.push(dense_shape(ctx, 2 * n + i)?);
    }
    let mut dims = shapes[0].clone();
    let rank = dims.len();
    let canonical = if axis < 0 { axis + rank as i64 } else { axis };
    require!(
        (0..rank as i64).contains(&canonical),
        "Concat dimension must be in range [{}, {rank}), got {axis}",
        -(rank as i64)
    );
    let axis = canonical as usize;
    // The numbers that are added to the rows of each input.
    let mut offsets = vec![0; n * rank];
    for (i, other) in shapes.iter().enumerate() {
        require!(
            other.len() == rank,
            "Ranks of all input tensors must match: expected {rank} but got {} at position {i}",
            other.len()
        );
        require!(indices[i].dims[1] == rank, "Order length must be SparseTensor rank.");
        for d in (0..rank).filter(|d| *d != axis) {
            require!(
                other[d] == dims[d],
                "Input shapes must match: expected {} for dimension {d} but got {} at position {i}",
                dims[d],
                other[d]
            );
        }
        if i > 0 {
            offsets[i * rank + axis] = dims[axis] as i64;
            // A saturated extent also overflows the product below.
            dims[axis] = dims[axis].saturating_add(other[axis]);
        }
        checked_product(&dims)?;
    }
    shape_output(ctx, 2, &dims)?;
    let total: usize = values.iter().map(Tensor::len).sum();
    let all = (ctx.temp(I64, &[total, rank])?, ctx.temp(values[0].dtype, &[total])?);
    ctx.device().check_extent(total * rank)?;
    let table = upload(ctx, &offsets)?;
    let mut first = 0;
    for (i, (indices, values)) in indices.iter().zip(&values).enumerate() {
        let to = Tensor::new(I64, &indices.dims, all.0.address + 8 * (first * rank) as u64);
        shift(ctx, indices, &table, i * rank, &to)?;
        if !values.is_empty() {
            let size = values.dtype.size() as u64;
            ctx.device().copy(
                all.1.address + first as u64 * size,
                values.address,
                values.bytes(),
            )?;
        }
        first += values.len();
    }
    let extents = upload(ctx, &dims.iter().map(|d| *d as i64).collect::<Vec<_>>())?;
    reorder(ctx, &all.0, &all.1, &extents)
}

/// Adds the numbers of `table` from `first` on to each row of `rows`.
pub fn shift(
    ctx: &dyn OpContext,
    rows: &Tensor,
    table: &Tensor,
    first: usize,
    out: &Tensor,
) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    ShiftCoordinates {
        rows: rows.into(),
        table: table.into(),
        out: out.into(),
        count: rows.len(),
        rank: rows.dims[1],
        first,
    }
    .enqueue(ctx.device(), &ShiftCoordinates::of(), Grid::map(rows.len(), I64))
}

/// WGSL of the position of row `i` of `indices` in a tensor whose extents begin `dims`.
const POSITION: &str = "fn position(i: u32) -> i64 {\n    var at = 0li;\n    for (var d = 0u; d < \
                        p.rank; d += 1u) {\n        at = at * load_dims(d) + load_indices(i * \
                        p.rank + d);\n    }\n    return at;\n}";

declare_program! {
    /// The position of each element among those of the dense tensor.
    struct CoordinateKeys = "sparse keys"();
    bindings { indices: I64, dims: I64, keys: I64 }
    params { count: usize, rank: usize }
    shader "sparse keys" =>
        .body(POSITION)
        .body("fn value(i: u32) -> i64 {\n    return position(i);\n}")
        .map("keys")
}

declare_program! {
    /// Coordinates after a reshape; `dims` holds the input's extents, then the strides of the
    /// output's.
    struct ReshapeCoordinates = "sparse reshape"();
    bindings { indices: I64, dims: I64, out: I64 }
    params { count: u32, rank: usize, out_rank: usize }
    shader "sparse reshape" =>
        .body(POSITION)
        .body(
            "fn value(t: u32) -> i64 {
    var at = position(t / p.out_rank);
    let d = t % p.out_rank;
    if d > 0u {
        at = at % load_dims(p.rank + d - 1u);
    }
    return at / load_dims(p.rank + d);
}",
        )
        .map("out")
}

declare_program! {
    /// Moves coordinates by an offset.
    struct ShiftCoordinates = "sparse shift"();
    bindings { rows: I64, table: I64, out: I64 }
    params { count: usize, rank: usize, first: usize }
    shader "sparse shift" =>
        .body(
            "fn value(t: u32) -> i64 {\n    return load_rows(t) + load_table(p.first + t % \
         p.rank);\n}",
        )
        .map("out")
}
