//! Pad, PadV2, MirrorPad and the gradient of MirrorPad.

use super::plan::Move;
use super::remap::{Background, Remap, Rule};
use super::shape;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::require;
use crate::tensor::Dims;

/// The paddings input: elements before and after, for each dimension.
pub fn paddings(ctx: &mut dyn OpContext, input: usize, dims: &[usize]) -> Result<Vec<[usize; 2]>> {
    let t = ctx.host_input(input)?;
    require!(
        t.dims.len() == 2 && t.dims[1] == 2,
        "paddings must be a matrix with 2 columns: {}",
        shape(&t.dims)
    );
    require!(
        t.dims[0] == dims.len(),
        "The first dimension of paddings must be the rank of inputs{} {}",
        shape(&t.dims),
        shape(dims)
    );
    let mut out = Vec::new();
    for pair in t.to_i64()?.chunks_exact(2) {
        require!(
            pair[0] >= 0 && pair[1] >= 0,
            "Paddings must be non-negative: {} {}",
            pair[0],
            pair[1]
        );
        out.push([pair[0] as usize, pair[1] as usize]);
    }
    Ok(out)
}

fn padded(dims: &[usize], pads: &[[usize; 2]]) -> Result<(Dims, Dims)> {
    let out: Dims =
        dims.iter().zip(pads).map(|(n, [a, b])| a.saturating_add(*n).saturating_add(*b)).collect();
    super::checked_product(&out)?;
    Ok((out, pads.iter().map(|p| p[0]).collect()))
}

/// Pad: input paddings (1). PadV2 also has constant_values (2).
pub fn pad(ctx: &mut dyn OpContext, dims: &[usize], dtype: DType, constant: bool) -> Result<Move> {
    let pads = paddings(ctx, 1, dims)?;
    let background = if constant {
        let value = ctx.host_input(2)?;
        require!(
            value.dims.is_empty(),
            "Constant values must be a scalar, but got shape {}",
            shape(&value.dims)
        );
        require!(value.dtype == dtype, "constant_values is {}, not {dtype}", value.dtype);
        Background::element(&value.bytes)
    } else {
        Background::ZERO
    };
    let (out, begin) = padded(dims, &pads)?;
    Ok(Move::remap(Remap::dense(Rule::Place, dims, &out, &begin, background)))
}

/// MirrorPad: input paddings (1); `rule` is Symmetric or Reflect.
pub fn mirror_pad(ctx: &mut dyn OpContext, dims: &[usize], rule: Rule) -> Result<Move> {
    let pads = paddings(ctx, 1, dims)?;
    check_mirror(dims, &pads, rule)?;
    let (out, begin) = padded(dims, &pads)?;
    Ok(Move::remap(Remap::dense(rule, dims, &out, &begin, Background::ZERO)))
}

/// Paddings may not reach beyond the mirrored elements.
pub fn check_mirror(dims: &[usize], pads: &[[usize; 2]], rule: Rule) -> Result<()> {
    for (d, (n, [before, after])) in dims.iter().zip(pads).enumerate() {
        match rule {
            Rule::Symmetric => require!(
                before <= n && after <= n,
                "paddings must be no greater than the dimension size: {before}, {after} greater \
                 than {n}"
            ),
            _ => require!(
                (*before == 0 && *after == 0) || (before < n && after < n),
                "paddings must be less than the dimension size: {before}, {after} not less than \
                 {n} in dimension {d}"
            ),
        }
    }
    Ok(())
}

/// The rule of a MirrorPad node's `mode`.
pub fn mirror_rule(mode: &str) -> Result<Rule> {
    match mode {
        "SYMMETRIC" => Ok(Rule::Symmetric),
        "REFLECT" => Ok(Rule::Reflect),
        _ => crate::invalid!("mode must be either REFLECT or SYMMETRIC, got {mode}"),
    }
}
