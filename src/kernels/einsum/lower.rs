//! Lowers strided operands to contractions.
//!
//! Axes are classes: *batch* (in both operands and the result), *rows* (the left operand and the
//! result), *columns* (the right operand and the result) and *summed*. A contraction takes one
//! stride for each of its rows, columns and summed steps; axes that do not merge into one stride
//! join the batch, except summed ones, for which an operand is copied.

use super::program;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::contract::{ALayout, Contraction, Store};
use crate::kernels::movement::walk::copy_strided;
use crate::kernels::op::OpContext;
use crate::layout::{Iteration, Strides, dense_strides};
use crate::tensor::{Dims, Tensor};

/// From this number of results on, sums of elementwise products take two programs: one workgroup
/// for each result would be a waste.
const MANY: usize = 64;

/// An operand: a tensor and its strides along the axes. An axis that it lacks has stride 0.
#[derive(Debug, Clone)]
pub(super) struct View {
    /// The memory.
    pub tensor: Tensor,
    /// Elements between neighbours, by axis.
    pub strides: Vec<i64>,
}

impl View {
    fn has(&self, axis: usize) -> bool {
        self.strides[axis] != 0
    }

    /// A single 1 that is repeated along every axis: the right operand of a sum.
    fn one(ctx: &mut dyn OpContext, dtype: DType, axes: usize) -> Result<Self> {
        let tensor = ctx.temp(dtype, &[1])?;
        let fill = |at: u64, bytes: u64, pattern: u32| {
            ctx.device().fill(tensor.address + at, bytes, pattern)
        };
        match dtype {
            DType::F16 => fill(0, 2, 0x3c00)?,
            DType::BF16 => fill(0, 2, 0x3f80)?,
            DType::F64 => {
                fill(0, 4, 0)?;
                fill(4, 4, 0x3ff0_0000)?;
            }
            _ => fill(0, 4, 1f32.to_bits())?,
        }
        Ok(Self { tensor, strides: vec![0; axes] })
    }

    /// A dense copy whose axes are `order`.
    fn packed(&self, ctx: &mut dyn OpContext, extents: &[usize], order: &[usize]) -> Result<Self> {
        let dims: Dims = order.iter().map(|a| extents[*a]).collect();
        let strides: Strides = order.iter().map(|a| self.strides[*a]).collect();
        let dense = dense_strides(&dims);
        let tensor = ctx.temp(self.tensor.dtype, &dims)?;
        let walk = Iteration::over(&dims).operand(&strides, 0).operand(&dense, 0);
        copy_strided(ctx.device(), &walk, &self.tensor, &tensor)?;
        let mut view = Self { tensor, strides: vec![0; self.strides.len()] };
        for (axis, stride) in order.iter().zip(dense) {
            view.strides[*axis] = stride;
        }
        Ok(view)
    }
}

/// Axes that a contraction walks as one.
#[derive(Debug, Clone, Copy)]
struct Block {
    extent: usize,
    /// Strides in the left operand, the right one and the result.
    strides: [i64; 3],
}

/// Computes the sum of the operands' product over all axes but `output`, dense in `y` in the order
/// of `output`.
pub(super) fn evaluate(
    ctx: &mut dyn OpContext,
    extents: &[usize],
    views: &[View],
    output: &[usize],
    y: &Tensor,
) -> Result<()> {
    let output: Vec<usize> = output.iter().copied().filter(|a| extents[*a] > 1).collect();
    match views {
        [x] => {
            if (0..extents.len()).any(|a| x.has(a) && !output.contains(&a)) {
                return sum(ctx, extents, x, &output, y);
            }
            let dims: Dims = output.iter().map(|a| extents[*a]).collect();
            let strides: Strides = output.iter().map(|a| x.strides[*a]).collect();
            let walk =
                Iteration::over(&dims).operand(&strides, 0).operand(&dense_strides(&dims), 0);
            copy_strided(ctx.device(), &walk, &x.tensor, y)
        }
        [a, b] => {
            let a = reduced(ctx, extents, a, b, &output)?;
            let b = reduced(ctx, extents, b, &a, &output)?;
            contract(ctx, extents, &a, &b, &output, y)
        }
        _ => unreachable!("an equation has one or two operands"),
    }
}

/// `x`, summed over the axes that neither the other operand nor the result has.
fn reduced(
    ctx: &mut dyn OpContext,
    extents: &[usize],
    x: &View,
    other: &View,
    output: &[usize],
) -> Result<View> {
    let walked = (0..extents.len()).filter(|a| x.has(*a));
    let (mut kept, dropped): (Vec<_>, Vec<_>) =
        walked.partition(|a| other.has(*a) || output.contains(a));
    if dropped.is_empty() {
        return Ok(x.clone());
    }
    kept.sort_by_key(|a| std::cmp::Reverse(x.strides[*a]));
    let dims: Dims = kept.iter().map(|a| extents[*a]).collect();
    let tensor = ctx.temp(x.tensor.dtype, &dims)?;
    sum(ctx, extents, x, &kept, &tensor)?;
    let mut view = View { tensor, strides: vec![0; extents.len()] };
    for (axis, stride) in kept.iter().zip(dense_strides(&dims)) {
        view.strides[*axis] = stride;
    }
    Ok(view)
}

/// The sum of `x` over all axes but `output`: a contraction with 1. Complex numbers are summed as
/// pairs, because a complex product with 1 would make NaNs of infinities.
fn sum(
    ctx: &mut dyn OpContext,
    extents: &[usize],
    x: &View,
    output: &[usize],
    y: &Tensor,
) -> Result<()> {
    let part = match x.tensor.dtype {
        DType::C64 => DType::F32,
        DType::C128 => DType::F64,
        dtype => {
            let one = View::one(ctx, dtype, extents.len())?;
            return contract(ctx, extents, x, &one, output, y);
        }
    };
    let pairs = |t: &Tensor| {
        let dims: Vec<_> = t.dims.iter().copied().chain([2]).collect();
        Tensor::new(part, &dims, t.address)
    };
    let extents: Vec<_> = extents.iter().copied().chain([2]).collect();
    let output: Vec<_> = output.iter().copied().chain([extents.len() - 1]).collect();
    let strides = x.strides.iter().map(|s| 2 * s).chain([1]).collect();
    let one = View::one(ctx, part, extents.len())?;
    contract(ctx, &extents, &View { tensor: pairs(&x.tensor), strides }, &one, &output, &pairs(y))
}

/// The contraction of two operands. Axes of one element are left out.
fn contract(
    ctx: &mut dyn OpContext,
    extents: &[usize],
    a: &View,
    b: &View,
    output: &[usize],
    y: &Tensor,
) -> Result<()> {
    let dims: Dims = output.iter().map(|d| extents[*d]).collect();
    let summed: Vec<usize> =
        (0..extents.len()).filter(|d| (a.has(*d) || b.has(*d)) && !output.contains(d)).collect();
    if summed.is_empty() {
        let strides = |v: &View| output.iter().map(|d| v.strides[*d]).collect::<Strides>();
        let walk =
            Iteration::over(&dims).operand(&strides(a), 0).operand(&strides(b), 0).collapse();
        return program::product(ctx.device(), &walk, &a.tensor, &b.tensor, y);
    }
    let batch_only = output.iter().all(|d| a.has(*d) && b.has(*d));
    if batch_only && dims.iter().product::<usize>() >= MANY {
        return products_and_sum(ctx, extents, [a, b], output, &summed, y);
    }
    // The result's innermost axis should be a column: results are stored in vec4s of columns.
    let last = output.last().copied();
    if last.is_some_and(|d| a.has(d) && !b.has(d)) && output.iter().any(|d| b.has(*d)) {
        return contract_placed(ctx, extents, [b, a], output, &summed, y);
    }
    let columns = output.iter().any(|d| b.has(*d) && !a.has(*d));
    if columns && last.is_some_and(|d| a.has(d)) {
        // The innermost axis belongs to the batch: contract to matrices, then transpose them.
        let mut order = output.to_vec();
        order.sort_by_key(|d| {
            (!a.has(*d), !b.has(*d) || !a.has(*d), usize::from(b.has(*d) && !a.has(*d)))
        });
        order.sort_by_key(|d| {
            if a.has(*d) && b.has(*d) {
                0
            } else if a.has(*d) {
                1
            } else {
                2
            }
        });
        let ordered: Dims = order.iter().map(|d| extents[*d]).collect();
        let tensor = ctx.temp(y.dtype, &ordered)?;
        contract_placed(ctx, extents, [a, b], &order, &summed, &tensor)?;
        let dense = dense_strides(&ordered);
        let strides: Strides = output
            .iter()
            .map(|d| order.iter().position(|o| o == d).map_or(0, |i| dense[i]))
            .collect();
        let walk = Iteration::over(&dims).operand(&strides, 0).operand(&dense_strides(&dims), 0);
        return copy_strided(ctx.device(), &walk, &tensor, y);
    }
    contract_placed(ctx, extents, [a, b], output, &summed, y)
}

/// Computes elementwise products in the type that sums are taken in, then their sums.
fn products_and_sum(
    ctx: &mut dyn OpContext,
    extents: &[usize],
    [a, b]: [&View; 2],
    output: &[usize],
    summed: &[usize],
    y: &Tensor,
) -> Result<()> {
    let order = [output, summed].concat();
    let dims: Dims = order.iter().map(|d| extents[*d]).collect();
    let strides = |v: &View| order.iter().map(|d| v.strides[*d]).collect::<Strides>();
    let walk = Iteration::over(&dims).operand(&strides(a), 0).operand(&strides(b), 0).collapse();
    let dtype = if y.dtype.lanes() > 1 { DType::F32 } else { y.dtype };
    let tensor = ctx.temp(dtype, &dims)?;
    program::product(ctx.device(), &walk, &a.tensor, &b.tensor, &tensor)?;
    let mut terms = View { tensor, strides: vec![0; extents.len()] };
    for (axis, stride) in order.iter().zip(dense_strides(&dims)) {
        terms.strides[*axis] = stride;
    }
    sum(ctx, extents, &terms, output, y)
}

/// A contraction whose columns, if there are any, include the result's innermost axis.
fn contract_placed(
    ctx: &mut dyn OpContext,
    extents: &[usize],
    [a, b]: [&View; 2],
    output: &[usize],
    summed: &[usize],
    y: &Tensor,
) -> Result<()> {
    let (a, b, summed) = with_one_stride(ctx, extents, [a, b], output, summed)?;
    let dense = dense_strides(&output.iter().map(|d| extents[*d]).collect::<Dims>());
    let block = |(d, c): (&usize, &i64)| Block {
        extent: extents[*d],
        strides: [a.strides[*d], b.strides[*d], *c],
    };
    let (mut rows, mut columns, mut batch) = (Vec::new(), Vec::new(), Vec::new());
    for (d, c) in output.iter().zip(&dense) {
        let class = match (a.has(*d), b.has(*d)) {
            (true, false) => &mut rows,
            (false, true) => &mut columns,
            _ => &mut batch,
        };
        push(class, block((d, c)));
    }
    // The largest block of rows and the innermost block of columns make the matrices; the other
    // blocks join the batch.
    let largest = (0..rows.len()).max_by_key(|i| rows[*i].extent);
    let unit = Block { extent: 1, strides: [0; 3] };
    let row = largest.map_or(unit, |i| rows.remove(i));
    let column = columns.pop().unwrap_or(Block { strides: [0, 0, 1], ..unit });
    debug_assert_eq!(column.strides[2], 1);
    batch.extend(rows);
    batch.extend(columns);
    batch.sort_by_key(|block| std::cmp::Reverse(block.strides[2]));
    let mut depth = Vec::new();
    for d in &summed {
        push(&mut depth, block((d, &0)));
    }
    let depth = depth.first().copied().unwrap_or(unit);
    // Matrices start at multiples of the batch strides' common divisor, which shows where loads of
    // four are aligned.
    let step = |k: usize| batch.iter().fold(0, |g, block| gcd(g, block.strides[k])).max(1);
    let walk_strides =
        |k: usize| batch.iter().map(|block| block.strides[k] / step(k)).collect::<Strides>();
    let walk_dims: Dims = batch.iter().map(|block| block.extent).collect();
    let mut walk = Iteration::over(&walk_dims);
    for k in 0..3 {
        walk = walk.operand(&walk_strides(k), 0);
    }
    let [a_row, b_column, c_row] = [row.strides[0], column.strides[1], row.strides[2]];
    let [a_step, b_step] = [depth.strides[0], depth.strides[1]];
    Contraction::product([row.extent, depth.extent, column.extent], [&a.tensor, &b.tensor, y])
        .left(ALayout::Dense { stride: a_row as usize }, a_step as usize)
        .right(b_step as usize, b_column as usize)
        .stored(Store::Rows(c_row as usize))
        .batched(walk.collapse(), [0, 1, 2].map(|k| step(k) as usize))
        .enqueue(ctx)
}

/// Appends a block, or lengthens the last one where all three tensors walk both evenly.
fn push(blocks: &mut Vec<Block>, block: Block) {
    if let Some(last) = blocks.last_mut() {
        let merges = last
            .strides
            .iter()
            .zip(block.strides)
            .all(|(outer, inner)| *outer == inner * block.extent as i64);
        if merges {
            *last = Block { extent: last.extent * block.extent, ..block };
            return;
        }
    }
    blocks.push(block);
}

const fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Whether `order` is one stride in `v`.
fn merges(v: &View, extents: &[usize], order: &[usize]) -> bool {
    order.windows(2).all(|pair| v.strides[pair[0]] == v.strides[pair[1]] * extents[pair[1]] as i64)
}

/// The operands, copied if necessary, and an order of the summed axes in which each operand walks
/// them with one stride.
fn with_one_stride(
    ctx: &mut dyn OpContext,
    extents: &[usize],
    views: [&View; 2],
    output: &[usize],
    summed: &[usize],
) -> Result<(View, View, Vec<usize>)> {
    let order_of = |v: &View| {
        let mut order = summed.to_vec();
        order.sort_by_key(|d| std::cmp::Reverse(v.strides[*d]));
        order
    };
    // Elements to copy when the axes are in this order.
    let cost = |order: &[usize]| {
        let copied = views.iter().filter(|v| !merges(v, extents, order));
        copied.map(|v| v.tensor.len()).sum::<usize>()
    };
    let orders = views.map(order_of);
    let order =
        if cost(&orders[1]) < cost(&orders[0]) { orders[1].clone() } else { orders[0].clone() };
    let mut placed = |v: &View| -> Result<View> {
        if merges(v, extents, &order) {
            return Ok(v.clone());
        }
        let kept = output.iter().copied().filter(|d| v.has(*d));
        v.packed(ctx, extents, &kept.chain(order.iter().copied()).collect::<Vec<_>>())
    };
    let (a, b) = (placed(views[0])?, placed(views[1])?);
    Ok((a, b, order))
}
