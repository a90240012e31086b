//! The gradient of MirrorPad: mirrored elements flow back, one padded axis after the other.

use super::pad::{check_mirror, paddings};
use super::remap::Rule;
use super::shape;
use crate::device::{Grid, declare_program};
use crate::dtype::{DType, types};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::require;
use crate::tensor::{Dims, Tensor};

/// Types with a gradient.
pub const TYPES: &[DType] = types::FLOATS;

/// MirrorPadGrad: inputs the padded gradient (0) and paddings (1).
pub fn mirror_pad_grad(ctx: &mut dyn OpContext, rule: Rule) -> Result<()> {
    let x = ctx.input(0)?;
    let pads = paddings(ctx, 1, &x.dims)?;
    let mut out = Dims::new();
    for (d, (n, [before, after])) in x.dims.iter().zip(&pads).enumerate() {
        require!(
            before + after <= *n,
            "Total paddings must be less than the input dimension size: dimension {d} of {} with \
             {before} and {after}",
            shape(&x.dims)
        );
        out.push(n - before - after);
    }
    check_mirror(&out, &pads, rule)?;
    let padded: Vec<usize> = (0..out.len()).filter(|d| pads[*d] != [0, 0]).collect();
    let Some(last) = padded.last().copied() else {
        return ctx.forward_input(0, 0, &out);
    };
    let mut src = x;
    for d in padded {
        let mut dims = src.dims.clone();
        dims[d] = out[d];
        let dst =
            if d == last { ctx.output(0, src.dtype, &dims)? } else { ctx.temp(src.dtype, &dims)? };
        fold_axis(ctx, &src, &dst, d, pads[d], rule)?;
        src = dst;
    }
    Ok(())
}

fn fold_axis(
    ctx: &dyn OpContext,
    src: &Tensor,
    dst: &Tensor,
    d: usize,
    pads: [usize; 2],
    rule: Rule,
) -> Result<()> {
    if dst.is_empty() {
        return Ok(());
    }
    let dtype = src.dtype;
    ctx.device().check_extent(dst.len().max(src.len()))?;
    let (count, inner) = (dst.len(), dst.dims[d + 1..].iter().product());
    let (extent, padded, [before, after]) = (dst.dims[d], src.dims[d], pads);
    let (src, dst, skip) = (src.into(), dst.into(), rule == Rule::Reflect);
    let call = FoldAxis { src, dst, count, inner, extent, padded, before, after, skip };
    call.enqueue(ctx.device(), &FoldAxis::of(dtype), Grid::map(count, dtype))
}

declare_program! {
    /// Adds the elements mirrored beyond the ends of one axis.
    pub struct FoldAxis = "mirror_grad"(dtype: DType);
    bindings { src: dtype, dst: dtype }
    params {
        count: usize, inner: usize, extent: usize, padded: usize, before: usize, after: usize,
        skip: bool,
    }
    shader format!("mirror_grad {dtype}") =>
        .define("VALUE", dtype.value())
        .body(include_str!("../../../shaders/movement/mirror_grad.wgsl"))
        .map("dst")
}
