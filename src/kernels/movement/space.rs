//! Ops that move blocks of space to the batch or to the depth and back: DepthToSpace, SpaceToDepth,
//! SpaceToBatchND, BatchToSpaceND and their older forms.

use super::pad::paddings;
use super::rearrange::permuted;
use super::remap::{Background, Remap, Rule};
use super::walk::copy_strided;
use super::{checked_product, index_values, shape};
use crate::error::Result;
use crate::kernels::op::{Attrs, OpContext};
use crate::layout::{Iteration, dense_strides};
use crate::tensor::{Dims, Tensor};
use crate::{invalid, require};

/// Moves `src`, seen with extents `dims`, into `dst` with its dimensions in `order`.
fn permute(
    ctx: &dyn OpContext,
    src: &Tensor,
    dims: &[usize],
    order: &[usize],
    dst: &Tensor,
) -> Result<()> {
    let walk = permuted(dims, order);
    let walk = walk.clone().operand(&dense_strides(walk.dims()), 0);
    copy_strided(ctx.device(), &walk, src, dst)
}

/// A node's layout of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Channels last.
    Nhwc,
    /// Channels first.
    Nchw,
}

impl Format {
    /// Reads `data_format`.
    pub fn of(attrs: &dyn Attrs) -> Result<Self> {
        match attrs.string("data_format")?.as_str() {
            "NHWC" => Ok(Self::Nhwc),
            "NCHW" => Ok(Self::Nchw),
            other => invalid!("data_format {other} is not supported; NHWC and NCHW are"),
        }
    }

    /// Batch, height, width and channels of `dims`.
    fn sizes(self, dims: &[usize]) -> [usize; 4] {
        match self {
            Self::Nhwc => [dims[0], dims[1], dims[2], dims[3]],
            Self::Nchw => [dims[0], dims[2], dims[3], dims[1]],
        }
    }

    fn dims(self, [n, h, w, c]: [usize; 4]) -> [usize; 4] {
        match self {
            Self::Nhwc => [n, h, w, c],
            Self::Nchw => [n, c, h, w],
        }
    }
}

/// DepthToSpace: blocks of the depth become blocks of space.
pub fn depth_to_space(ctx: &mut dyn OpContext, format: Format, block: i64) -> Result<()> {
    let x = ctx.input(0)?;
    require!(x.rank() == 4, "Input rank should be: 4 instead of: {}", x.rank());
    require!(block > 1, "Block size should be > 1, but was: {block}");
    let b = block as usize;
    let [n, h, w, c] = format.sizes(&x.dims);
    require!(c % (b * b) == 0, "Input depth dimension {c} should be divisible by: {}", b * b);
    let d = c / (b * b);
    let dst = ctx.output(0, x.dtype, &format.dims([n, h * b, w * b, d]))?;
    match format {
        Format::Nhwc => permute(ctx, &x, &[n, h, w, b, b, d], &[0, 1, 3, 2, 4, 5], &dst),
        Format::Nchw => permute(ctx, &x, &[n, b, b, d, h, w], &[0, 3, 4, 1, 5, 2], &dst),
    }
}

/// SpaceToDepth: blocks of space become blocks of the depth.
pub fn space_to_depth(ctx: &mut dyn OpContext, format: Format, block: i64) -> Result<()> {
    let x = ctx.input(0)?;
    require!(x.rank() == 4, "Input rank should be 4 instead of: {}", x.rank());
    require!(block > 1, "Block size should be > 1, but was: {block}");
    let b = block as usize;
    let [n, h, w, c] = format.sizes(&x.dims);
    require!(
        h % b == 0 && w % b == 0,
        "Image width {w} and height {h} should be divisible by block_size: {b}"
    );
    let dst = ctx.output(0, x.dtype, &format.dims([n, h / b, w / b, c * b * b]))?;
    match format {
        Format::Nhwc => permute(ctx, &x, &[n, h / b, b, w / b, b, c], &[0, 1, 3, 2, 4, 5], &dst),
        Format::Nchw => permute(ctx, &x, &[n, c, h / b, b, w / b, b], &[0, 3, 5, 1, 2, 4], &dst),
    }
}

/// The block extents of the ND ops (host input 1) or of the older ops (attribute).
fn blocks(ctx: &mut dyn OpContext, block: Option<i64>) -> Result<Vec<usize>> {
    let list = match block {
        Some(b) => vec![b, b],
        None => {
            let t = ctx.host_input(1)?;
            require!(t.dims.len() == 1, "block_shape rank should be 1 instead of {}", t.dims.len());
            index_values(&t)?
        }
    };
    for (i, b) in list.iter().enumerate() {
        require!(*b > 0, "block_shape[{i}] must be positive, got {b}");
    }
    Ok(list.into_iter().map(|b| b as usize).collect())
}

fn product(dims: &[usize]) -> usize {
    dims.iter().product()
}

/// SpaceToBatchND (block `None`) and SpaceToBatch: inputs input (0), block_shape (1), paddings (2),
/// or input and paddings (1).
pub fn space_to_batch(ctx: &mut dyn OpContext, block: Option<i64>) -> Result<()> {
    let x = ctx.input(0)?;
    let blocks = blocks(ctx, block)?;
    let m = blocks.len();
    require!(x.rank() > m, "input rank should be >= {} instead of {}", m + 1, x.rank());
    let pads = paddings(ctx, if block.is_some() { 1 } else { 2 }, &x.dims[1..=m])?;
    let mut padded = x.dims.clone();
    let mut begin: Dims = x.dims.iter().map(|_| 0).collect();
    for d in 0..m {
        padded[d + 1] = pads[d].iter().fold(padded[d + 1], |n, p| n.saturating_add(*p));
        begin[d + 1] = pads[d][0];
        require!(
            padded[d + 1] % blocks[d] == 0,
            "padded_shape[{d}]={} is not divisible by block_shape[{d}]={}",
            padded[d + 1],
            blocks[d]
        );
    }
    checked_product(&padded)?;
    let rest = product(&x.dims[m + 1..]);
    let mut out = padded.clone();
    out[0] = checked_product(&[&[out[0]], &blocks[..]].concat())?;
    (0..m).for_each(|d| out[d + 1] /= blocks[d]);
    let dst = ctx.output(0, x.dtype, &out)?;
    let src = if padded == x.dims {
        x
    } else {
        let t = ctx.temp(x.dtype, &padded)?;
        Remap::dense(Rule::Place, &x.dims, &padded, &begin, Background::ZERO).enqueue(
            ctx.device(),
            &x,
            &t,
        )?;
        t
    };
    // The input is seen as (batch, out 1, block 1, out 2, block 2, …, rest); blocks go before the
    // batch.
    let mut seen = vec![padded[0]];
    (0..m).for_each(|d| seen.extend([out[d + 1], blocks[d]]));
    seen.push(rest);
    let order: Vec<usize> = (0..m)
        .map(|d| 2 * d + 2)
        .chain([0])
        .chain((0..m).map(|d| 2 * d + 1))
        .chain([2 * m + 1])
        .collect();
    permute(ctx, &src, &seen, &order, &dst)
}

/// BatchToSpaceND (block `None`) and BatchToSpace: inputs input (0), block_shape (1), crops (2), or
/// input and crops (1).
pub fn batch_to_space(ctx: &mut dyn OpContext, block: Option<i64>) -> Result<()> {
    let x = ctx.input(0)?;
    let blocks = blocks(ctx, block)?;
    let m = blocks.len();
    require!(x.rank() > m, "input rank should be >= {} instead of {}", m + 1, x.rank());
    let all = checked_product(&blocks)?;
    require!(
        x.dims[0] % all == 0,
        "Input batch dimension ({}) is not divisible by product of block sizes ({all})",
        x.dims[0]
    );
    let crops = paddings(ctx, if block.is_some() { 1 } else { 2 }, &x.dims[1..=m])?;
    let batch = x.dims[0] / all;
    let mut whole = x.dims.clone();
    whole[0] = batch;
    let mut out = whole.clone();
    for d in 0..m {
        whole[d + 1] = checked_product(&[whole[d + 1], blocks[d]])?;
        let cropped = crops[d][0] + crops[d][1];
        require!(
            cropped <= whole[d + 1],
            "cropped_shape[{d}]={} must be non-negative",
            whole[d + 1] as i128 - cropped as i128
        );
        out[d + 1] = whole[d + 1] - cropped;
    }
    let dst = ctx.output(0, x.dtype, &out)?;
    let target = if whole == out { dst.clone() } else { ctx.temp(x.dtype, &whole)? };
    // The input is seen as (block 1, …, block m, batch, in 1, …, in m, rest); each block follows
    // its extent.
    let mut seen = blocks.clone();
    seen.push(batch);
    seen.extend_from_slice(&x.dims[1..=m]);
    seen.push(product(&x.dims[m + 1..]));
    let order: Vec<usize> =
        [m].into_iter().chain((0..m).flat_map(|d| [m + 1 + d, d])).chain([2 * m + 1]).collect();
    permute(ctx, &x, &seen, &order, &target)?;
    if whole == out {
        return Ok(());
    }
    let strides = dense_strides(&whole);
    let offset = (0..m).map(|d| crops[d][0] as i64 * strides[d + 1]).sum();
    let walk = Iteration::over(&out).operand(&strides, offset).operand(&dense_strides(&out), 0);
    debug_assert_eq!(target.dims.len(), out.len(), "{}", shape(&out));
    copy_strided(ctx.device(), &walk, &target, &dst)
}
