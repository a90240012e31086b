//! Sibling products as one program: several pairs of operands, and several results with an epilogue
//! each. Contractions are siblings if they differ in nothing but their tensors.
//!
//! **Results apart.** Siblings with one left operand are the products for query, key and value of
//! an attention, or the gradients of their weights. Each right operand and each result is a tensor
//! of its own; a workgroup computes a tile of one of them. Loads and stores that depend on the
//! sibling cost a branch, which is the same for a whole workgroup. So siblings share a program only
//! where one alone would leave the adapter idle, and where cooperative matrices do not compute
//! them. Others are enqueued one after the other.
//!
//! **Sums of columns.** The gradient of a layer's bias is the sum of the right operand's columns in
//! the product that makes the gradient of its weights. The workgroups of the first rows add up the
//! elements of the right operand that they load for their products anyway, so that it is not read
//! again. The sums are one more row of the result, stored to a tensor of its own. Where the
//! contracted index is cut they are a row of the partial sums, and the program that adds those
//! stores both. A tile of cooperative matrices or of lanes that share loads has no place for them,
//! nor have shares of tiles: there the caller reduces the operand itself.
//!
//! **One result.** `x0 y0 + x1 y1 + …` has one contracted index, as long as the indices of all its
//! terms together. Each of its outer steps is a term, whose operands are tensors of their own. So
//! the gradient of the tensor that query, key and value are computed from takes one program, and no
//! intermediate result is stored.

use smallvec::SmallVec;

use super::choice::Choice;
pub use super::contraction::MOST_TERMS;
use super::epilogue::Bound;
pub use super::parts::MOST_RESULTS;
use super::plan::ProductPlan;
use super::programs::{Dispatch, Programs};
use super::tile::{Tile, TileKind};
use super::tile_variant::SumsKind;
use super::{ALayout, BLayout, Contraction, Store, StoreKind, choices, finish, run};
use crate::device::{Binding, Device, Grid, Profile, Schedule, check_extent};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::windows::limit;
use crate::tensor::Tensor;

/// Bindings of a program of `terms` terms with `extras` further operands of an epilogue.
pub const fn bindings_of_terms(terms: usize, extras: usize) -> usize {
    2 * terms + 1 + extras
}

/// Enqueues plans, as one program where that pays. With `sums`, one for each plan, the programs
/// also compute the sums of the right operands' columns, where they can. An absent plan is enqueued
/// already. Returns for each plan whether its sums are computed.
pub fn enqueue(
    ctx: &mut dyn OpContext,
    plans: Vec<Option<ProductPlan<'_>>>,
    sums: &[Tensor],
) -> Result<SmallVec<[bool; MOST_RESULTS]>> {
    let are_together = {
        let all = || plans.iter().map(|plan| Sibling::of(plan.as_ref()?)).collect();
        let siblings: Option<Siblings<'_>> = if plans.len() > 1 { all() } else { None };
        siblings.map_or(Ok(false), |siblings| together(ctx, &siblings, sums))?
    };
    if are_together {
        return Ok(SmallVec::from_elem(true, plans.len()));
    }
    let mut sums = sums.chunks(1);
    let each = plans.into_iter().map(|plan| {
        let (Some(plan), own) = (plan, sums.next()) else { return Ok(false) };
        let sibling = Sibling::of(&plan);
        if let (Some(own), Some(sibling)) = (own, sibling)
            && together(ctx, &[sibling], own)?
        {
            return Ok(true);
        }
        plan.enqueue(ctx).map(|()| false)
    });
    each.collect()
}

/// One contraction for the sum of all plans, each of which is a product without an epilogue.
/// `epilogue` applies to their sum. None if the plans are no siblings.
pub fn sum<'e>(
    plans: &[ProductPlan<'_>],
    profile: &Profile,
    epilogue: Option<Bound<'e>>,
) -> Option<ProductPlan<'e>> {
    let terms: Option<Siblings<'_>> = plans.iter().map(Sibling::of).collect();
    let terms = terms.filter(|t| t.iter().all(|t| t.epilogue.is_none()))?;
    let (first, others) = terms.split_first()?;
    let ALayout::Dense { stride } = first.c.a_layout else { return None };
    let extras = epilogue.as_ref().map_or(0, Bound::tensors);
    let limit = limit(&profile.capabilities);
    let fits = terms.len() <= MOST_TERMS
        && bindings_of_terms(terms.len(), extras) <= profile.capabilities.max_bindings as usize
        && first.c.fits(limit, epilogue.as_ref())
        && (first.c.outer, first.c.b_layout) == (1, BLayout::Dense)
        && others.iter().all(|other| other.is_sibling(first));
    if !fits {
        return None;
    }
    let others = others.iter().map(|t| [t.c.a.clone(), t.c.b.clone()]).collect();
    let sum = first
        .c
        .clone()
        .outer(terms.len(), BLayout::Strided(0))
        .left(ALayout::Terms { stride, others }, first.c.a_step);
    if !sum.fits(limit, epilogue.as_ref()) {
        return None;
    }
    let mut plan = ProductPlan::new();
    plan.contract(sum, epilogue).ok()?;
    Some(plan)
}

type Siblings<'p> = SmallVec<[Sibling<'p>; MOST_RESULTS]>;

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

    /// Whether both differ in nothing but their tensors. Siblings are single products of matrices.
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
            && (x.a.dtype, x.b.dtype, x.c.dtype) == (y.a.dtype, y.b.dtype, y.c.dtype)
            && (x.b_layout, x.store, x.conjugated) == (y.b_layout, y.store, y.conjugated)
    }
}

/// Enqueues siblings with one left operand as one program, or a single one with its sums, if there
/// is such a program and it pays.
fn together(ctx: &mut dyn OpContext, siblings: &[Sibling<'_>], sums: &[Tensor]) -> Result<bool> {
    let profile = ctx.device().profile();
    let Some(choice) = choice(ctx.device(), siblings) else { return Ok(false) };
    let Some(first) = programs(siblings, sums, choice, &profile)? else { return Ok(false) };
    run::with_reserve(ctx, first, |_| {
        run::portable(siblings[0].c, profile, choice)
            .map_or(Ok(None), |(other, profile)| programs(siblings, sums, other, &profile))
    })?;
    Ok(true)
}

/// The tile for all siblings. None for several, if one keeps the adapter busy, if it is to be cut,
/// or if matrix units compute it. None for a single one if it is tuned.
fn choice(device: &Device, siblings: &[Sibling<'_>]) -> Option<Choice> {
    let (first, others) = siblings.split_first()?;
    let (c, profile) = (first.c, device.profile());
    let cooperative = run::usable(device, c.a.dtype, c.b_type());
    if others.is_empty() {
        let is_tuned = device.tuner().is_some() && profile.tile == 0;
        return (!is_tuned).then(|| choices::of(device, c, 1, cooperative));
    }
    let of_one_left =
        |other: &Sibling<'_>| other.is_sibling(first) && other.c.a.address == c.a.address;
    if siblings.len() > MOST_RESULTS || cooperative.is_some() || !others.iter().all(of_one_left) {
        return None;
    }
    let choice = choices::of(device, c, siblings.len(), None);
    let whole = c.chunk(limit(&profile.capabilities), choice.split_k) >= c.depth();
    let idle = choice.tile.tiles(c.m, c.n) <= profile.workgroups;
    (whole && idle).then(|| Choice::of_tiles(choice.tile, 1))
}

/// The programs of siblings with a chosen tile, if they can make the sums.
fn programs(
    siblings: &[Sibling<'_>],
    sums: &[Tensor],
    choice: Choice,
    profile: &Profile,
) -> Result<Option<Programs>> {
    let [Sibling { c, epilogue }] = siblings else {
        return Ok(whole(siblings, sums, choice.tile, profile).map(Programs::from));
    };
    let limit = limit(&profile.capabilities);
    let is_cut = c.chunk(limit, choice.split_k) < c.depth();
    let [sums] = sums else { return Ok(None) };
    if !can_sum(c, choice.tile, sums) || choice.schedule == Schedule::StreamK {
        return Ok(None);
    }
    if !is_cut {
        let sums = std::slice::from_ref(sums);
        return Ok(whole(siblings, sums, choice.tile, profile).map(Programs::from));
    }
    // With one row more, the result's partial sums are the partial sums of everything.
    let rows = Tensor::new(c.c.dtype, &[c.m + 1, c.n], c.c.address);
    let long = Contraction { c: rows, ..(*c).clone() };
    let chunk = long.chunk(limit, choice.split_k);
    let mut programs = Programs::default();
    let computed = c.a.dtype.accumulator();
    let slices = [c.depth().div_ceil(chunk), long.c.len()];
    let partial = programs.temporaries.tensor(computed, &slices);
    check_extent(partial.len())?;
    let extras = epilogue.map_or(0, Bound::tensors);
    let fits = 4 + extras <= profile.capabilities.max_bindings as usize;
    if !fits || !finish::stores_both(&c.c, sums) || partial.bytes() > limit {
        return Ok(None);
    }
    let mut variant = c.variant(choice.tile);
    variant.c = (computed, long.store_kind(&partial));
    variant.sums = SumsKind::Row;
    programs.push(long.dispatch(variant, &partial, chunk, None, None));
    programs.push(finish::dispatch_both(&partial, &c.c, sums, *epilogue));
    Ok(Some(programs))
}

/// Whether a tile's invocations can add up the columns of the right operand.
fn can_sum(c: &Contraction, tile: &Tile, sums: &Tensor) -> bool {
    c.batch.len() == 1
        && c.b_layout == BLayout::Dense
        && matches!(c.store, Store::Rows(_))
        && c.a.dtype.is_single()
        && has_place(tile)
        && (sums.len(), sums.dtype) == (c.n, c.a.dtype)
}

/// Whether the invocations of a tile can make sums: tiles that share loads do not hold a whole
/// operand.
pub(super) const fn has_place(tile: &Tile) -> bool {
    !matches!(tile.kind, TileKind::Subgroup | TileKind::Cooperative { .. })
}

/// How all sums are stored; `None` if the program cannot make them.
fn sums_kind(c: &Contraction, tile: &Tile, sums: &[Tensor]) -> Option<SumsKind> {
    let Some(first) = sums.first() else { return Some(SumsKind::None) };
    let aligned = |t: &Tensor| t.address.is_multiple_of(4 * t.dtype.size() as u64);
    let four = c.n.is_multiple_of(4) && sums.iter().all(aligned);
    let fits = sums.iter().all(|t| can_sum(c, tile, t)) && (four || first.dtype.lanes() == 1);
    fits.then_some(if four { SumsKind::Vec4s } else { SumsKind::Elements })
}

/// The program of contractions that are not cut, if the adapter has bindings for its tensors.
fn whole(
    siblings: &[Sibling<'_>],
    sums: &[Tensor],
    tile: &'static Tile,
    profile: &Profile,
) -> Option<Dispatch> {
    let of_sums = sums_kind(siblings[0].c, tile, sums)?;
    let variant = |sibling: &Sibling<'_>| {
        let mut variant = sibling.c.variant(tile);
        let vec4s = variant.c.1 == StoreKind::Vec4s;
        variant.epilogue = sibling.epilogue.map(|e| e.variant(vec4s));
        variant.parts = siblings.len();
        variant.sums = of_sums;
        (variant, vec4s)
    };
    let (first, vec4s) = variant(&siblings[0]);
    let alike = siblings[1..].iter().all(|sibling| variant(sibling).0 == first);
    let direct = first.c.0.lanes() == 1 || vec4s;
    let extras = siblings[0].epilogue.map_or(0, Bound::tensors);
    let bindings = 1 + siblings.len() * (2 + extras) + sums.len();
    if !alike || !direct || bindings > profile.capabilities.max_bindings as usize {
        return None;
    }
    let mut all: SmallVec<[Dispatch; MOST_RESULTS]> = siblings
        .iter()
        .map(|s| s.c.dispatch(first.clone(), &s.c.c, s.c.depth(), None, s.epilogue))
        .collect();
    // Each has bound a, b, c, and its epilogue's operands.
    let a = all[0].bindings[0];
    let of = |at: usize| all.iter().map(move |d| d.bindings[at]);
    let extras = all.iter().flat_map(|d| d.bindings[3..].iter().copied());
    let unit = if of_sums == SumsKind::Vec4s { 4 } else { 1 };
    let sums = sums.iter().map(|t| Binding::raw(t, t.dtype.size() as u32 * unit));
    let bindings: SmallVec<[Binding; 8]> =
        std::iter::once(a).chain(of(1)).chain(of(2)).chain(sums).chain(extras).collect();
    let tiles = tile.tiles(siblings[0].c.m, siblings[0].c.n) * siblings.len();
    let whole = all.swap_remove(0);
    Some(Dispatch { bindings, grid: Grid::groups(tiles), ..whole })
}
