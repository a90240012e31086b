//! The programs of a contraction that fits the bindings, once its tile is chosen: one for its tiles
//! and, if it is cut or its result is packed, one that adds the sums of its parts. If the driver
//! refuses them, others run.

use smallvec::SmallVec;

use super::assembly;
use super::bytes;
use super::choice::{self, Choice};
use super::epilogue::{Bound, Epilogue};
use super::programs::{Dispatch, Programs};
use super::shares::{Shares, Tiles, Work};
use super::tile::TileKind;
use super::tile_variant::TileWalk;
use super::{
    ALayout, BLayout, Contraction, Lanes, Store, StoreKind, TileVariant, finish, validation,
};
use crate::device::{Binding, Cooperative, Device, Grid, Params, Profile, Schedule, check_extent};
use crate::dtype::{DType, Operations};
use crate::error::{Error, Result};
use crate::kernels::op::OpContext;
use crate::kernels::windows::limit;
use crate::tensor::Tensor;

/// One f32 sum runs over about this many steps of the contracted index (at most twice this number).
/// The limit bounds the rounding error of long contractions and keeps loops below
/// [`crate::device::Profile::loop_limit`].
const MAX_CHUNK: usize = 8192;
/// The most elements of partial sums that are worth storing for parallelism alone.
const MAX_PARTIAL: usize = 1 << 24;

impl Contraction {
    /// The longest contracted index that need not be cut.
    pub const LONGEST_WHOLE: usize = MAX_CHUNK;

    /// The programs for a choice, on an adapter of this profile. Cooperative tiles multiply
    /// matrices that the adapter lists as `cooperative`.
    pub(super) fn programs(
        &self,
        choice: Choice,
        cooperative: Option<Cooperative>,
        epilogue: Option<&Bound<'_>>,
        profile: &Profile,
    ) -> Result<Programs> {
        if let Some(packed) = self.packed(profile) {
            return packed.programs(choice, None, epilogue, profile);
        }
        let Choice { tile, split_k, .. } = choice;
        let mut programs = Programs::default();
        let mut variant = self.variant(tile);
        if matches!(tile.kind, TileKind::Cooperative { .. }) {
            variant.cooperative = cooperative;
        }
        let chunk = self.chunk(limit(&profile.capabilities), split_k);
        let split_k = self.depth().div_ceil(chunk);
        let vec4s = variant.c.1 == StoreKind::Vec4s;
        if split_k == 1 && (self.c.dtype.lanes() == 1 || vec4s) {
            variant.epilogue = epilogue.map(|e| e.variant(vec4s));
            let work = self.work(choice, chunk, epilogue, profile);
            self.add_tiles(&mut programs, &variant, &self.c, (chunk, work), epilogue);
            return Ok(programs);
        }
        let computed = self.a.dtype.accumulator();
        let partial = programs.temporaries.tensor(computed, &[split_k, self.c.len()]);
        check_extent(partial.len())?;
        variant.c = (computed, self.store_kind(&partial));
        let work = self.work(choice, chunk, None, profile);
        self.add_tiles(&mut programs, &variant, &partial, (chunk, work), None);
        programs.push(finish::dispatch(&partial, &self.c, epilogue, vec4s));
        Ok(programs)
    }

    /// Steps of the contracted index that one workgroup takes if the index is to be cut into
    /// `wanted` parts: whole outer steps, or a multiple of 4 where an outer step is too long or the
    /// only one. Both respect loads in vec4s, which need `inner` to be a multiple of 4.
    pub(super) fn chunk(&self, limit: u64, wanted: usize) -> usize {
        let depth = self.depth();
        if matches!(self.store, Store::Places { .. }) {
            return depth;
        }
        let most = (limit as usize / self.a.dtype.accumulator().size()).min(MAX_PARTIAL);
        let by_work = wanted.min(most / self.c.len().max(1)).max(1);
        let split_k = by_work.max(depth.div_ceil(MAX_CHUNK)).min(depth);
        if self.outer > 1 && self.inner <= MAX_CHUNK {
            self.outer.div_ceil(split_k) * self.inner
        } else {
            depth.div_ceil(split_k).next_multiple_of(4)
        }
    }

    /// Operands of the terms behind the first one.
    fn others(&self) -> &[[Tensor; 2]] {
        if let ALayout::Terms { others, .. } = &self.a_layout { others } else { &[] }
    }

    /// How a choice's workgroups share its tiles and parts, of `chunk` steps each.
    fn work(
        &self,
        choice: Choice,
        chunk: usize,
        epilogue: Option<&Bound<'_>>,
        profile: &Profile,
    ) -> Work {
        if choice.schedule == Schedule::DataParallel {
            return Work::Tiles;
        }
        let split_k = self.depth().div_ceil(chunk);
        let tiles = choice.tile.tiles(self.m, self.n) * self.batch.len() * split_k;
        let sum = self.a.dtype.accumulator().size();
        let weights = self.weights.as_ref().map_or(0, |weights| weights.tensors());
        let more = epilogue.map_or(0, Bound::tensors) + 2 * self.others().len() + weights;
        let may_cut = split_k == 1 && Epilogue::fits(more, profile.capabilities.max_bindings);
        let tiles = Tiles { count: tiles, depth: chunk, sum, may_cut };
        Work::new(choice.tile, choice.schedule, &tiles, profile)
    }

    /// Appends the programs of `variant` that store sums of `chunk` steps each to `c`.
    fn add_tiles(
        &self,
        programs: &mut Programs,
        variant: &TileVariant,
        c: &Tensor,
        (chunk, work): (usize, Work),
        epilogue: Option<&Bound<'_>>,
    ) {
        let split_k = self.depth().div_ceil(chunk);
        let tiles = variant.tile.tiles(self.m, self.n) * self.batch.len() * split_k;
        let add = |programs: &mut Programs, walk, workgroups, cut: Option<(&Shares, &Tensor)>| {
            let variant = TileVariant { walk, ..variant.clone() };
            let grid = Grid::groups(workgroups);
            programs.push(Dispatch { grid, ..self.dispatch(variant, c, chunk, cut, epilogue) });
        };
        match work {
            Work::Tiles => add(programs, TileWalk::Tile, tiles, None),
            Work::Persistent(workgroups) => add(programs, TileWalk::Persistent, workgroups, None),
            Work::Shares(shares) => {
                let slot = variant.tile.m() * variant.tile.n();
                let computed = self.a.dtype.accumulator();
                // The buffer is bound as vec4s of sums. Allocators align them: to 64 bytes or more.
                let partial = programs.temporaries.tensor(computed, &[shares.slots(), slot]);
                add(programs, TileWalk::StreamK, shares.count, Some((&shares, &partial)));
                add(programs, TileWalk::FixUp, shares.count - 1, Some((&shares, &partial)));
            }
        }
    }

    /// The program of `variant` that stores sums of `chunk` steps each to `c`. `cut` says how tiles
    /// are cut and where the sums of their parts are.
    pub(super) fn dispatch(
        &self,
        variant: TileVariant,
        c: &Tensor,
        chunk: usize,
        cut: Option<(&Shares, &Tensor)>,
        epilogue: Option<&Bound<'_>>,
    ) -> Dispatch {
        let split_k = self.depth().div_ceil(chunk);
        let tiles = variant.tile.tiles(self.m, self.n) * self.batch.len() * variant.parts;
        let mut params = Params::new();
        if let Some((shares, _)) = cut {
            params = shares.params(params);
        }
        params = params
            .u32(self.m)
            .u32(self.n)
            .u32(tiles * split_k)
            .u32(split_k)
            .u32(chunk)
            .u32(self.depth());
        params = params
            .u32(self.inner)
            .u32(self.a_step)
            .u32(self.b_step)
            .u32(self.b_column)
            .u32(self.c.len());
        params = match &self.a_layout {
            ALayout::Dense { stride } | ALayout::Terms { stride, .. } => params.u32(*stride),
            ALayout::Patch(g) => g.patch_params(params),
            ALayout::Spread(g) => g.spread_params(params),
            ALayout::Window(g) => g.window_params(params),
        };
        params = match self.b_layout {
            BLayout::Dense => params,
            BLayout::Strided(stride) => params.u32(stride),
            BLayout::Planar { count, image, stride } => params.u32(count).u32(image).u32(stride),
        };
        params = self.weights.iter().fold(params, |params, weights| weights.params(params));
        params = match self.store {
            Store::Rows(stride) | Store::Columns(stride) => params.u32(stride),
            Store::Planes { plane, image } => params.u32(plane).u32(image),
            Store::Places { extents, strides } => {
                extents.iter().chain(&strides).fold(params, |p, v| p.u32(*v))
            }
        };
        if variant.batch.is_some() {
            params = params.u32(self.a_matrix).u32(self.b_matrix).u32(self.c_matrix);
            params = self.batch.params(params);
        }
        if let Some(epilogue) = epilogue {
            params = epilogue.params(params);
        }
        let unit = |t: &Tensor, vec4s: bool| {
            Binding::raw(t, t.dtype.size() as u32 * if vec4s { 4 } else { 1 })
        };
        let operations = self.operations(&variant);
        let mut bindings = SmallVec::new();
        if variant.walk != TileWalk::FixUp {
            let others = self.others().iter();
            let a = std::iter::once(&self.a).chain(others.clone().map(|[a, _]| a));
            let b = std::iter::once(&self.b).chain(others.map(|[_, b]| b));
            bindings.extend(a.map(|a| unit(a, variant.a.1 != Lanes::One)));
            match (&self.weights, &variant.weights) {
                (Some(weights), Some(form)) => {
                    bindings.push(Binding::raw(&self.b, 1));
                    bindings.extend(weights.bindings(form));
                }
                _ => bindings.extend(b.map(|b| unit(b, variant.b.1 != Lanes::One))),
            }
        }
        bindings.push(unit(c, variant.c.1 == StoreKind::Vec4s));
        if let Some((_, partial)) = cut {
            bindings.push(unit(partial, true));
        }
        if let (Some(epilogue), Some(form)) = (epilogue, &variant.epilogue) {
            bindings.extend(epilogue.bindings(form));
        }
        Dispatch {
            key: variant.key(),
            shader: Box::new(move || assembly::shader(&variant)),
            bindings,
            params,
            grid: Grid::groups(tiles * split_k),
            operations,
        }
    }

    /// The operations of the program of `variant`: a product and a sum for each step of each
    /// result. The few additions of a fix-up do not count.
    fn operations(&self, variant: &TileVariant) -> Operations {
        if variant.walk == TileWalk::FixUp {
            return Operations::default();
        }
        let results = self.m * self.n * self.batch.len() * variant.parts;
        let steps = self.depth() * self.packing.map_or(1, |_| bytes::PER_WORD);
        self.a.dtype.product_operations(results * steps)
    }
}

/// The cooperative matrices that may be used for operands of these types. The first call tries
/// them, on a device of their own.
pub fn usable(device: &Device, a: DType, b: DType) -> Option<Cooperative> {
    let offered = device.capabilities().matrices.get(a).filter(|_| a == b)?;
    device.matrix_units().usable(offered, |policy| validation::try_out(device, offered, policy))
}

/// Enqueues the programs of a choice.
pub(super) fn enqueue(
    c: &Contraction,
    ctx: &mut dyn OpContext,
    choice: Choice,
    cooperative: Option<Cooperative>,
    epilogue: Option<&Bound<'_>>,
) -> Result<()> {
    let programs = c.programs(choice, cooperative, epilogue, &ctx.device().profile())?;
    if let Some(offered) = cooperative.filter(|_| choice.is_cooperative()) {
        // A failure that is found before the program is enqueued is not an error of the op.
        programs.prepare(ctx.device()).inspect_err(|e| refuse(ctx.device(), &offered, e))?;
    }
    with_reserve(ctx, programs, |ctx| in_reserve(c, ctx, choice, epilogue))
}

/// Enqueues `programs`. If the driver refuses one of them, the programs that `reserve` gives run
/// instead; they compute the same.
pub(super) fn with_reserve(
    ctx: &mut dyn OpContext,
    programs: Programs,
    reserve: impl FnOnce(&mut dyn OpContext) -> Result<Option<Programs>>,
) -> Result<()> {
    let memory = programs.temporaries.allocate(ctx)?;
    let first = programs.gather(ctx.device(), &memory, false)?;
    // It is not known yet whether the driver takes programs that are not compiled.
    if ctx.device().are_compiled(&first) {
        return ctx.device().enqueue_gathered(first);
    }
    let Some(programs) = reserve(ctx)? else { return ctx.device().enqueue_gathered(first) };
    // An op must not fail for want of memory that it most likely does not need.
    let Ok(memory) = programs.temporaries.allocate(ctx) else {
        return ctx.device().enqueue_gathered(first);
    };
    let second = programs.gather(ctx.device(), &memory, true)?;
    ctx.device().enqueue_either(first, second)
}

/// A choice other than `choice`, with its profile, for a driver that refuses the programs of
/// `choice`: the choice of an adapter that has no more than WebGPU promises, or else the plainest
/// one.
pub(super) fn portable(c: &Contraction, own: Profile, choice: Choice) -> Option<(Choice, Profile)> {
    let profile = own.portable();
    let demand = c.demand(profile, None);
    let is_other = |other: &Choice| (other.tile, other.schedule) != (choice.tile, choice.schedule);
    let others = [Some(choice::choose(&demand)), choice::plainest(&demand)];
    others.into_iter().flatten().find(is_other).map(|other| (other, profile))
}

/// The programs of the [`portable`] choice.
fn in_reserve(
    c: &Contraction,
    ctx: &dyn OpContext,
    choice: Choice,
    epilogue: Option<&Bound<'_>>,
) -> Result<Option<Programs>> {
    portable(c, ctx.device().profile(), choice)
        .map(|(other, profile)| c.programs(other, None, epilogue, &profile))
        .transpose()
}

/// Ends the use of cooperative matrices on `device`.
pub(super) fn refuse(device: &Device, offered: &Cooperative, reason: &Error) {
    if device.matrix_units().refuse(offered) {
        let Cooperative { element, size, .. } = offered;
        log::warn!(
            "{}: cooperative matrices {size} of {element} are not used, since {reason}",
            device.info().name
        );
    }
}
