//! A product with the sums of its right operand's columns: the gradients of a layer's weights and
//! of its bias. The workgroups of the first rows add up the elements of the right operand that they
//! load for their products anyway, so that the operand is not read again.
//!
//! The sums are one more row of the result, stored to a tensor of its own. Where the contracted
//! index is cut they are a row of the partial sums, and the program that adds those stores both. A
//! tile of cooperative matrices or of lanes that share loads has no place for them, nor have shares
//! of tiles: there the sums are not computed, and the caller reduces the operand itself.

use super::choice::Choice;
use super::column_sums::SumsKind;
use super::epilogue::Bound;
use super::plan::ProductPlan;
use super::programs::Programs;
use super::tile::{Tile, TileKind};
use super::{BLayout, Contraction, Store, StoreKind, choices, finish, run};
use crate::device::{Binding, Profile, Schedule, check_extent};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::windows::limit;
use crate::tensor::Tensor;

/// Bindings in front of the sums' tensor: both operands and the result.
const AT: usize = 3;

/// Enqueues a plan. If it is one program that can also compute the sums of the right operand's
/// columns, one for each column, it does so. Returns whether it has computed the sums.
pub fn enqueue(ctx: &mut dyn OpContext, plan: ProductPlan<'_>, sums: &Tensor) -> Result<bool> {
    if let Some((c, epilogue)) = plan.contraction()
        && with_sums(ctx, c, epilogue, sums)?
    {
        return Ok(true);
    }
    plan.enqueue(ctx).map(|()| false)
}

/// Enqueues the programs of a contraction that also computes sums, if there are such programs.
fn with_sums(
    ctx: &mut dyn OpContext,
    c: &Contraction,
    epilogue: Option<&Bound<'_>>,
    sums: &Tensor,
) -> Result<bool> {
    let profile = ctx.device().profile();
    let is_tuned = ctx.device().tuner().is_some() && profile.tile == 0;
    let plain = c.batch.len() == 1
        && c.n == sums.len()
        && c.b_layout == BLayout::Dense
        && matches!(c.store, Store::Rows(_))
        && c.a.dtype.is_single();
    if is_tuned || !plain {
        return Ok(false);
    }
    let cooperative = run::usable(ctx.device(), c.a.dtype, c.b.dtype);
    let choice = choices::of(ctx.device(), c, 1, cooperative);
    let Some(first) = programs(c, choice, epilogue, sums, &profile)? else { return Ok(false) };
    run::with_reserve(ctx, first, |_| {
        run::portable(c, profile, choice)
            .map_or(Ok(None), |(other, profile)| programs(c, other, epilogue, sums, &profile))
    })?;
    Ok(true)
}

/// The same with a chosen tile.
fn programs(
    c: &Contraction,
    choice: Choice,
    epilogue: Option<&Bound<'_>>,
    sums: &Tensor,
    profile: &Profile,
) -> Result<Option<Programs>> {
    let Choice { tile, split_k, schedule } = choice;
    let extras = epilogue.map_or(0, Bound::tensors);
    let fits = AT + 1 + extras <= profile.capabilities.max_bindings as usize;
    if !has_place(tile) || !fits || schedule == Schedule::StreamK {
        return Ok(None);
    }
    let mut variant = c.variant(tile);
    let vec4s = variant.c.1 == StoreKind::Vec4s;
    let four = c.n.is_multiple_of(4) && sums.address.is_multiple_of(4 * sums.dtype.size() as u64);
    let chunk = c.chunk(limit(&profile.capabilities), split_k);
    let mut programs = Programs::default();
    if chunk >= c.depth() {
        if !(vec4s || c.c.dtype.lanes() == 1) || !(four || sums.dtype.lanes() == 1) {
            return Ok(None);
        }
        variant.epilogue = epilogue.map(|e| e.variant(vec4s));
        variant.sums = if four { SumsKind::Vec4s } else { SumsKind::Elements };
        let mut dispatch = c.dispatch(variant, &c.c, chunk, None, epilogue);
        let unit = sums.dtype.size() as u32 * if four { 4 } else { 1 };
        dispatch.bindings.insert(AT, Binding::raw(sums, unit));
        programs.push(dispatch);
        return Ok(Some(programs));
    }
    // With one row more, the result's partial sums are the partial sums of everything.
    let rows = Tensor::new(c.c.dtype, &[c.m + 1, c.n], c.c.address);
    let long = Contraction { c: rows, ..c.clone() };
    let chunk = long.chunk(limit(&profile.capabilities), split_k);
    let computed = c.a.dtype.accumulator();
    let partial = programs.temporaries.tensor(computed, &[c.depth().div_ceil(chunk), long.c.len()]);
    check_extent(partial.len())?;
    if !finish::stores_both(&c.c, sums) || partial.bytes() > limit(&profile.capabilities) {
        return Ok(None);
    }
    variant.c = (computed, long.store_kind(&partial));
    variant.sums = SumsKind::Row;
    programs.push(long.dispatch(variant, &partial, chunk, None, None));
    programs.push(finish::dispatch_both(&partial, &c.c, sums, epilogue));
    Ok(Some(programs))
}

/// Whether the invocations of a tile can make sums: those that share loads do not hold a whole
/// operand.
pub(super) const fn has_place(tile: &Tile) -> bool {
    !matches!(tile.kind, TileKind::Subgroup | TileKind::Cooperative { .. })
}
