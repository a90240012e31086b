//! The programs of a contraction that fits the bindings: the contraction itself, and, if it is cut
//! or its result is packed, the program that adds the sums of its parts.

use smallvec::SmallVec;

use super::choice::Choice;
use super::epilogue::{Bound, Epilogue};
use super::plan::{Dispatch, Plan};
use super::shares::{Shares, Tiles, Work};
use super::tile::OperandMemory;
use super::walk::Walk;
use super::{Contraction, Lanes, Lines, Rows, Store, StoreKind, Variant, finish};
use crate::device::{Binding, Cooperative, Grid, Params, Profile, check_extent};
use crate::error::Result;
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
    ) -> Result<Plan<'static>> {
        let Choice { tile, split_k, .. } = choice;
        let mut plan = Plan::new();
        let mut variant = self.variant(tile);
        if matches!(tile.memory, OperandMemory::Cooperative { .. }) {
            variant.cooperative = cooperative;
        }
        let chunk = self.chunk(limit(&profile.capabilities), split_k);
        let split_k = self.depth().div_ceil(chunk);
        let vec4s = variant.c.1 == StoreKind::Vec4s;
        if split_k == 1 && (self.c.dtype.lanes() == 1 || vec4s) {
            variant.epilogue = epilogue.map(|e| e.variant(vec4s));
            let work = self.work(choice, chunk, epilogue, profile);
            self.add_tiles(&mut plan, &variant, &self.c, (chunk, work), epilogue);
            return Ok(plan);
        }
        let computed = self.a.dtype.accumulator();
        let partial = plan.temporary(computed, &[split_k, self.c.len()]);
        check_extent(partial.len())?;
        variant.c = (computed, self.store_kind(&partial));
        let work = self.work(choice, chunk, None, profile);
        self.add_tiles(&mut plan, &variant, &partial, (chunk, work), None);
        plan.dispatch(finish::dispatch(&partial, &self.c, epilogue, vec4s));
        Ok(plan)
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

    /// Length of the contracted index.
    pub(super) const fn depth(&self) -> usize {
        self.outer * self.inner
    }

    /// Operands of the terms behind the first one.
    fn others(&self) -> &[[Tensor; 2]] {
        if let Rows::Terms { others, .. } = &self.rows { others } else { &[] }
    }

    /// How a choice's workgroups share its tiles and parts, of `chunk` steps each.
    fn work(
        &self,
        choice: Choice,
        chunk: usize,
        epilogue: Option<&Bound<'_>>,
        profile: &Profile,
    ) -> Work {
        let split_k = self.depth().div_ceil(chunk);
        let tiles = choice.tile.tiles(self.m, self.n) * self.batch.len() * split_k;
        let sum = self.a.dtype.accumulator().size();
        let more = epilogue.map_or(0, Bound::tensors) + 2 * self.others().len();
        let may_cut = split_k == 1 && Epilogue::fits(more, profile.capabilities.max_bindings);
        let tiles = Tiles { count: tiles, depth: chunk, sum, may_cut };
        Work::new(choice.tile, choice.schedule, &tiles, profile)
    }

    /// Appends the programs of `variant` that store sums of `chunk` steps each to `c`.
    fn add_tiles(
        &self,
        plan: &mut Plan<'static>,
        variant: &Variant,
        c: &Tensor,
        (chunk, work): (usize, Work),
        epilogue: Option<&Bound<'_>>,
    ) {
        let split_k = self.depth().div_ceil(chunk);
        let tiles = variant.tile.tiles(self.m, self.n) * self.batch.len() * split_k;
        let add = |plan: &mut Plan<'static>, walk, workgroups, cut: Option<(&Shares, &Tensor)>| {
            let variant = Variant { walk, ..variant.clone() };
            let grid = Grid::groups(workgroups);
            plan.dispatch(Dispatch { grid, ..self.dispatch(variant, c, chunk, cut, epilogue) });
        };
        match work {
            Work::Tiles => add(plan, Walk::Tile, tiles, None),
            Work::Persistent(workgroups) => add(plan, Walk::Persistent, workgroups, None),
            Work::Shares(shares) => {
                let slot = variant.tile.m() * variant.tile.n();
                let computed = self.a.dtype.accumulator();
                // The buffer is bound as vec4s of sums. Allocators align them: to 64 bytes or more.
                let partial = plan.temporary(computed, &[shares.slots(), slot]);
                add(plan, Walk::StreamK, shares.count, Some((&shares, &partial)));
                add(plan, Walk::FixUp, shares.count - 1, Some((&shares, &partial)));
            }
        }
    }

    /// The program of `variant` that stores sums of `chunk` steps each to `c`. `cut` says how tiles
    /// are cut and where the sums of their parts are.
    pub(super) fn dispatch(
        &self,
        variant: Variant,
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
        params = match &self.rows {
            Rows::Dense { stride } | Rows::Terms { stride, .. } => params.u32(*stride),
            Rows::Patch(g) => g.patch_params(params),
            Rows::Spread(g) => g.spread_params(params),
            Rows::Window(g) => g.window_params(params),
        };
        params = match self.lines {
            Lines::Dense => params,
            Lines::Strided(stride) => params.u32(stride),
            Lines::Planar { count, image, stride } => params.u32(count).u32(image).u32(stride),
        };
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
        let flops = self.flops(&variant);
        let mut bindings = SmallVec::new();
        if variant.walk != Walk::FixUp {
            let others = self.others().iter();
            let a = std::iter::once(&self.a).chain(others.clone().map(|[a, _]| a));
            let b = std::iter::once(&self.b).chain(others.map(|[_, b]| b));
            bindings.extend(a.map(|a| unit(a, variant.a.1 != Lanes::One)));
            bindings.extend(b.map(|b| unit(b, variant.b.1 != Lanes::One)));
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
            shader: Box::new(move || variant.shader()),
            bindings,
            params,
            grid: Grid::groups(tiles * split_k),
            flops,
        }
    }

    /// Floating-point operations of the program of `variant`: a product and a sum for each step of
    /// each result. The few additions of a fix-up do not count.
    fn flops(&self, variant: &Variant) -> u64 {
        if variant.walk == Walk::FixUp {
            return 0;
        }
        let results = self.m * self.n * self.batch.len() * variant.parts;
        self.a.dtype.product_flops(results * self.depth())
    }
}
