//! Transpose, reverse, broadcast, tile and roll: one planner each.

use super::plan::Move;
use super::remap::{Axis, Background, Remap, Rule};
use super::shape;
use crate::error::Result;
use crate::kernels::op::{OpContext, OpContextExt};
use crate::layout::{Iteration, Strides, dense_strides};
use crate::tensor::Dims;
use crate::{invalid, require};

/// Transpose and ConjugateTranspose of real types: input perm (1).
pub fn transpose(ctx: &mut dyn OpContext, dims: &[usize]) -> Result<Move> {
    let perm = ctx.host_input(1)?;
    require!(perm.dims.len() == 1, "perm must be rank 1, got shape {}", shape(&perm.dims));
    let perm = perm.to_i64()?;
    let rank = dims.len();
    require!(
        perm.len() == rank,
        "transpose expects a vector of size {rank}. But input(1) is a vector of size {}",
        perm.len()
    );
    let mut order = Vec::new();
    for &d in &perm {
        let wrapped = if d < 0 { d + rank as i64 } else { d };
        require!((0..rank as i64).contains(&wrapped), "{d} is out of range [0 .. {rank})");
        order.push(wrapped as usize);
    }
    if let Some(missing) = (0..rank).find(|d| !order.contains(d)) {
        let list: Vec<String> = perm.iter().map(i64::to_string).collect();
        invalid!("{missing} is missing from {{{}}}.", list.join(","));
    }
    Ok(Move::strided(permuted(dims, &order)))
}

/// The walk whose dimension `d` is dimension `order[d]` of a dense tensor of `dims`.
pub fn permuted(dims: &[usize], order: &[usize]) -> Iteration {
    let strides = dense_strides(dims);
    let out: Dims = order.iter().map(|d| dims[*d]).collect();
    let from: Strides = order.iter().map(|d| strides[*d]).collect();
    Iteration::over(&out).operand(&from, 0)
}

/// ReverseV2: input axis (1), a vector of axes.
pub fn reverse_axes(ctx: &mut dyn OpContext, dims: &[usize]) -> Result<Move> {
    let axes = ctx.host_input(1)?;
    require!(axes.dims.len() == 1, "'dims' must be 1-dimension, not {}", axes.dims.len());
    let mut reversed = vec![false; dims.len()];
    for (i, axis) in axes.to_i64()?.into_iter().enumerate() {
        let rank = dims.len() as i64;
        let canonical = if axis < 0 { axis + rank } else { axis };
        require!(
            (0..rank).contains(&canonical),
            "'axis'[{i}] = {axis} is out of valid range [0, {}",
            rank - 1
        );
        require!(!reversed[canonical as usize], "axis {canonical} specified more than once.");
        reversed[canonical as usize] = true;
    }
    Ok(reverse(dims, &reversed))
}

/// Reverse: input dims (1), a bool for each dimension.
pub fn reverse_flags(ctx: &mut dyn OpContext, dims: &[usize]) -> Result<Move> {
    let flags = ctx.host_input(1)?;
    require!(flags.dims.len() == 1, "'dims' must be 1-dimension, not {}", flags.dims.len());
    require!(
        flags.dims[0] == dims.len(),
        "'dims' must have the same number of values as 'input' has dimensions. 'input' has \
         {}'dims' has {} values",
        dims.len(),
        flags.dims[0]
    );
    Ok(reverse(dims, &flags.values::<u8>().iter().map(|f| *f != 0).collect::<Vec<_>>()))
}

fn reverse(dims: &[usize], reversed: &[bool]) -> Move {
    let mut strides = dense_strides(dims);
    let mut offset = 0;
    for d in 0..dims.len() {
        if reversed[d] {
            offset += (dims[d] as i64 - 1).max(0) * strides[d];
            strides[d] = -strides[d];
        }
    }
    Move::strided(Iteration::over(dims).operand(&strides, offset))
}

/// BroadcastTo: input shape (1).
pub fn broadcast_to(ctx: &mut dyn OpContext, dims: &[usize]) -> Result<Move> {
    let out = super::host_shape(ctx, 1, "shape")?;
    require!(
        dims.len() <= out.len(),
        "Rank of input ({}) must be no greater than rank of output shape ({}).",
        dims.len(),
        out.len()
    );
    let lead = out.len() - dims.len();
    let fits = dims.iter().zip(&out[lead..]).all(|(n, o)| n == o || *n == 1);
    require!(fits, "Incompatible shapes: {} vs. {}", shape(dims), shape(&out));
    Ok(Move::strided(Iteration::over(&out).broadcast(dims)))
}

/// Tile: input multiples (1).
pub fn tile(ctx: &mut dyn OpContext, dims: &[usize]) -> Result<Move> {
    let multiples = ctx.host_input(1)?;
    require!(
        multiples.dims.len() == 1,
        "Expected multiples to be 1-D, but got shape {}",
        shape(&multiples.dims)
    );
    require!(
        multiples.dims[0] == dims.len(),
        "Expected multiples argument to be a vector of length {} but got length {}",
        dims.len(),
        multiples.dims[0]
    );
    // Each dimension is walked as (copy, element): the copy takes no step.
    let (mut walked, mut strides, mut out) = (Dims::new(), Strides::new(), Dims::new());
    for (i, (m, (n, s))) in
        multiples.to_i64()?.into_iter().zip(dims.iter().zip(dense_strides(dims))).enumerate()
    {
        require!(m >= 0, "Expected multiples[{i}] >= 0, but got {m}");
        walked.extend([m as usize, *n]);
        strides.extend([0, s]);
        out.push(super::checked_product(&[m as usize, *n])?);
    }
    super::checked_product(&out)?;
    Ok(Move::strided(Iteration::over(&walked).operand(&strides, 0)).reshaped(&out))
}

/// Roll: inputs shift (1) and axis (2), scalars or vectors.
pub fn roll(ctx: &mut dyn OpContext, dims: &[usize]) -> Result<Move> {
    let (shift, axis) = (ctx.host_input(1)?, ctx.host_input(2)?);
    require!(!dims.is_empty(), "input must be 1-D or higher");
    require!(
        shift.dims.len() <= 1,
        "shift must be a scalar or a 1-D vector. Found: {}",
        shape(&shift.dims)
    );
    require!(
        axis.dims.len() <= 1,
        "axis must be a scalar or a 1-D vector. Found: {}",
        shape(&axis.dims)
    );
    require!(shift.dims == axis.dims, "shift and axis must have the same size");
    let mut begin = vec![0i64; dims.len()];
    for (s, a) in ctx.host_i64s(1)?.into_iter().zip(axis.to_i64()?) {
        let canonical = if a < 0 { a + dims.len() as i64 } else { a };
        require!((0..dims.len() as i64).contains(&canonical), "axis {canonical} is out of range");
        let n = dims[canonical as usize].max(1) as i64;
        let b = &mut begin[canonical as usize];
        *b = (*b - s % n).rem_euclid(n);
    }
    let strides = dense_strides(dims);
    let axes = (0..dims.len())
        .map(|d| Axis {
            out: dims[d],
            extent: dims[d],
            begin: begin[d] as usize,
            step: 1,
            stride: strides[d],
        })
        .collect();
    Ok(Move::remap(Remap { rule: Rule::Roll, axes, offset: 0, background: Background::ZERO }))
}
