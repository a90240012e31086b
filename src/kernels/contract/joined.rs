//! Several contractions of one left operand as one program: the products for query, key and value
//! of an attention, or the gradients of their weights. Each right operand and each result is a
//! tensor of its own; a workgroup computes a tile of one of them, its part.
//!
//! Loads and stores that depend on the part cost a branch, which is the same for a whole workgroup.
//! So contractions are joined only where one alone would leave the adapter idle, and where they are
//! neither tuned nor computed by cooperative matrices. Others are enqueued one after the other.
//!
//! With the sums of their right operands' columns ([`super::summed`]), as the gradients of the
//! biases of query, key and value are, each part has one tensor more. Not every adapter has
//! bindings for them all.

use smallvec::SmallVec;

use super::choice::Choice;
use super::column_sums::SumsKind;
use super::epilogue::Bound;
pub use super::parts::MOST;
use super::plan::ProductPlan;
use super::programs::{Dispatch, Programs};
use super::{ALayout, BLayout, Contraction, StoreKind, choices, run, summed};
use crate::device::{Binding, Device, Grid, Profile};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::windows::limit;
use crate::tensor::Tensor;

/// Enqueues the plans, as one program where that pays.
pub fn enqueue(ctx: &mut dyn OpContext, plans: Vec<ProductPlan<'_>>) -> Result<()> {
    if joined(ctx, &plans, &[])? {
        return Ok(());
    }
    plans.into_iter().try_for_each(|plan| plan.enqueue(ctx))
}

/// Enqueues the plans as one program that also computes the sums of each right operand's columns,
/// one sum for each column. Where that does not pay, or is not possible, it gives the plans back.
pub fn enqueue_with_sums<'p>(
    ctx: &mut dyn OpContext,
    plans: Vec<ProductPlan<'p>>,
    sums: &[Tensor],
) -> Result<Option<Vec<ProductPlan<'p>>>> {
    Ok(if joined(ctx, &plans, sums)? { None } else { Some(plans) })
}

/// Enqueues one program for all plans, and for the sums, if any. Returns whether there is such a
/// program.
fn joined(ctx: &mut dyn OpContext, plans: &[ProductPlan<'_>], sums: &[Tensor]) -> Result<bool> {
    let profile = ctx.device().profile();
    let parts: Option<SmallVec<[Sibling<'_>; MOST]>> = plans.iter().map(Sibling::of).collect();
    let Some(parts) = parts else { return Ok(false) };
    let Some(choice) = choice(ctx.device(), &parts) else { return Ok(false) };
    let c = parts[0].c;
    if run::usable(ctx.device(), c.a.dtype, c.a.dtype).is_some() {
        return Ok(false);
    }
    let Some(first) = dispatch(&parts, sums, choice, &profile) else { return Ok(false) };
    run::with_reserve(ctx, first.into(), |_| {
        let other = run::portable(c, profile, choice);
        let other = other.map(|(other, profile)| (Choice::of_tiles(other.tile, 1), profile));
        Ok(other
            .and_then(|(other, profile)| dispatch(&parts, sums, other, &profile))
            .map(Programs::from))
    })?;
    Ok(true)
}

/// One of the contractions, with its epilogue.
struct Sibling<'p> {
    c: &'p Contraction,
    epilogue: Option<&'p Bound<'p>>,
}

impl<'p> Sibling<'p> {
    /// The contraction of a plan that consists of nothing else.
    fn of(plan: &'p ProductPlan<'_>) -> Option<Self> {
        plan.contraction().map(|(c, epilogue)| Self { c, epilogue })
    }

    /// Whether both differ in nothing but the right operand's, the result's and the epilogue's
    /// tensors.
    fn is_sibling(&self, other: &Self) -> bool {
        let (x, y) = (self.c, other.c);
        let rows = match (&x.a_layout, &y.a_layout) {
            (ALayout::Dense { stride: x }, ALayout::Dense { stride: y }) => x == y,
            _ => false,
        };
        let extents = |c: &Contraction| {
            [c.m, c.n, c.outer, c.inner, c.a_step, c.b_step, c.b_column, c.batch.len()]
        };
        rows && extents(x) == extents(y)
            && x.batch.len() == 1
            && (x.a.address, x.a.dtype) == (y.a.address, y.a.dtype)
            && (x.b.dtype, x.c.dtype) == (y.b.dtype, y.c.dtype)
            && (x.b_layout, x.store, x.conjugated) == (y.b_layout, y.store, y.conjugated)
    }
}

/// The tile for all parts, unless one contraction keeps the adapter busy, or is to be cut.
fn choice(device: &Device, parts: &[Sibling<'_>]) -> Option<Choice> {
    let (first, others) = parts.split_first()?;
    let fits = (1..MOST).contains(&others.len()) && others.iter().all(|p| p.is_sibling(first));
    if !fits {
        return None;
    }
    let c = first.c;
    let profile = device.profile();
    let choice = choices::of(device, c, parts.len(), None);
    let whole = c.chunk(limit(&profile.capabilities), choice.split_k) >= c.depth();
    let idle = choice.tile.tiles(c.m, c.n) <= profile.workgroups;
    (whole && idle).then(|| Choice::of_tiles(choice.tile, 1))
}

/// How all sums are stored; `None` if the program cannot make them.
fn sums_kind(c: &Contraction, choice: Choice, sums: &[Tensor]) -> Option<SumsKind> {
    let Some(first) = sums.first() else { return Some(SumsKind::None) };
    let aligned = |t: &Tensor| t.address.is_multiple_of(4 * t.dtype.size() as u64);
    let four = c.n.is_multiple_of(4) && sums.iter().all(aligned);
    let fits = c.b_layout == BLayout::Dense
        && c.a.dtype.is_single()
        && summed::has_place(choice.tile)
        && sums.iter().all(|t| t.len() == c.n && t.dtype == c.a.dtype)
        && (four || first.dtype.lanes() == 1);
    fits.then_some(if four { SumsKind::Vec4s } else { SumsKind::Elements })
}

/// The program, if the adapter has bindings for its tensors.
fn dispatch(
    parts: &[Sibling<'_>],
    sums: &[Tensor],
    choice: Choice,
    profile: &Profile,
) -> Option<Dispatch> {
    let of_sums = sums_kind(parts[0].c, choice, sums)?;
    let variant = |part: &Sibling<'_>| {
        let mut variant = part.c.variant(choice.tile);
        let vec4s = variant.c.1 == StoreKind::Vec4s;
        variant.epilogue = part.epilogue.map(|e| e.variant(vec4s));
        variant.parts = parts.len();
        variant.sums = of_sums;
        (variant, vec4s)
    };
    let (first, vec4s) = variant(&parts[0]);
    let alike = parts[1..].iter().all(|part| variant(part).0 == first);
    let direct = first.c.0.lanes() == 1 || vec4s;
    let extras = parts[0].epilogue.map_or(0, Bound::tensors);
    let bindings = 1 + parts.len() * (2 + extras) + sums.len();
    if !alike || !direct || bindings > profile.capabilities.max_bindings as usize {
        return None;
    }
    let mut all: SmallVec<[Dispatch; MOST]> = parts
        .iter()
        .map(|p| p.c.dispatch(first.clone(), &p.c.c, p.c.depth(), None, p.epilogue))
        .collect();
    // Each has bound a, b, c, and its epilogue's operands.
    let a = all[0].bindings[0];
    let of = |at: usize| all.iter().map(move |d| d.bindings[at]);
    let extras = all.iter().flat_map(|d| d.bindings[3..].iter().copied());
    let unit = if of_sums == SumsKind::Vec4s { 4 } else { 1 };
    let sums = sums.iter().map(|t| Binding::raw(t, t.dtype.size() as u32 * unit));
    let bindings: SmallVec<[Binding; 8]> =
        std::iter::once(a).chain(of(1)).chain(of(2)).chain(sums).chain(extras).collect();
    let tiles = choice.tile.tiles(parts[0].c.m, parts[0].c.n) * parts.len();
    let whole = all.swap_remove(0);
    Some(Dispatch { bindings, grid: Grid::groups(tiles), ..whole })
}
