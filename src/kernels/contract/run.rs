//! What is enqueued for a contraction: the choice of a tile, copies of operands for it, the
//! contraction itself, and what adds the sums of its parts.

use smallvec::smallvec;

use super::choice::{self, Choice, Demand};
use super::epilogue::Bound;
use super::tile::Memory;
use super::work::Work;
use super::{Contraction, Lanes, Lines, Rows, Store, StoreKind, Variant};
use super::{element, finish, narrow, tuned, validation};
use crate::device::{Binding, Cooperative, Device, Grid, Params, Program};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::windows::limit;
use crate::tensor::Tensor;

/// Most steps of the contracted index that one f32 sum runs over (twice as many at most), which
/// bounds the rounding error of long contractions and keeps loops below
/// [`crate::device::Profile::loop_limit`].
const MAX_CHUNK: usize = 8192;
/// Most elements of the buffer of partial sums that parallelism alone is worth.
const MAX_PARTIAL: usize = 1 << 24;

impl Contraction<'_> {
    /// The longest contracted index that need not be cut.
    pub const LONGEST_WHOLE: usize = MAX_CHUNK;

    /// Enqueues the contraction; every element of `c` is written. An empty contracted index gives
    /// zeros.
    pub fn enqueue(&self, ctx: &mut dyn OpContext) -> Result<()> {
        self.enqueue_with(ctx, None)
    }

    /// The same with an epilogue, which needs a contracted index that is not empty.
    pub fn enqueue_with(
        &self,
        ctx: &mut dyn OpContext,
        epilogue: Option<&Bound<'_>>,
    ) -> Result<()> {
        if self.c.is_empty() {
            return Ok(());
        }
        let depth = self.outer * self.inner;
        // An empty operand has no element to clamp a load to.
        if depth == 0 || self.a.is_empty() || self.b.is_empty() {
            debug_assert!(epilogue.is_none(), "no epilogue without products");
            return ctx.device().fill(self.c.address, self.c.bytes(), 0);
        }
        if !self.fits(ctx.device(), epilogue) {
            return self.enqueue_windows(ctx, epilogue);
        }
        self.whole(ctx, epilogue)
    }

    /// Enqueues a contraction that fits the bindings.
    pub(super) fn whole(
        &self,
        ctx: &mut dyn OpContext,
        epilogue: Option<&Bound<'_>>,
    ) -> Result<()> {
        for extent in
            [self.a.len(), self.b.len(), self.c.len(), self.m * 2, 2 * self.outer * self.inner]
        {
            ctx.device().check_extent(extent)?;
        }
        match narrow::transposed(self) {
            Some(turned) => turned.plan(ctx, epilogue),
            None => self.plan(ctx, epilogue),
        }
    }

    /// Chooses the tile.
    fn plan(&self, ctx: &mut dyn OpContext, epilogue: Option<&Bound<'_>>) -> Result<()> {
        let profile = ctx.device().profile();
        let cooperative = validation::usable(ctx, self.a.dtype, self.b.dtype);
        let demand = Demand {
            profile,
            words: element::words(self.a.dtype),
            m: self.m,
            n: self.n,
            depth: self.outer * self.inner,
            batch: self.batch.len(),
            by_depth: self.b_step == 1 && self.n > 1 && self.b_column != 1,
            cooperative: cooperative.map_or(0, |c| c.edge),
        };
        let tuner = ctx.device().tuner().filter(|_| profile.tile == 0).cloned();
        let done = match tuner {
            Some(tuner) => tuned::enqueue(self, ctx, &tuner, &demand, cooperative, epilogue),
            None => {
                self.execute(ctx, choice::choose(&demand), cooperative, epilogue, Work::Enqueue)
            }
        };
        match done {
            // Without cooperative matrices, where they turned out to be unusable.
            Err(_)
                if cooperative.is_some()
                    && validation::usable(ctx, self.a.dtype, self.b.dtype).is_none() =>
            {
                self.plan(ctx, epilogue)
            }
            done => done,
        }
    }

    /// Carries out a choice, copying operands where that is worth it.
    pub(super) fn execute(
        &self,
        ctx: &mut dyn OpContext,
        choice: Choice,
        cooperative: Option<Cooperative>,
        epilogue: Option<&Bound<'_>>,
        work: Work<'_>,
    ) -> Result<()> {
        let Choice { tile, split_k } = choice;
        let mut variant = self.variant(tile);
        if matches!(tile.memory, Memory::Cooperative(_)) {
            variant.cooperative = cooperative;
        }
        variant.epilogue = epilogue.map(|e| e.form(variant.c.1 == StoreKind::Vec4s));
        let chunk = self.chunk(ctx.device(), split_k);
        self.run(ctx, variant, chunk, epilogue, work)
    }

    /// Enqueues `variant`, and what finishes the sums of several chunks.
    fn run(
        &self,
        ctx: &mut dyn OpContext,
        mut variant: Variant,
        chunk: usize,
        epilogue: Option<&Bound<'_>>,
        work: Work<'_>,
    ) -> Result<()> {
        let split_k = (self.outer * self.inner).div_ceil(chunk);
        let packed = self.c.dtype.lanes() > 1;
        let direct = split_k == 1 && (!packed || variant.c.1 == StoreKind::Vec4s);
        if direct {
            return self.dispatch(work, ctx.device(), &variant, (self.c, chunk), epilogue);
        }
        variant.epilogue = None;
        let computed = element::computed(self.a.dtype);
        let partial = work.temp(ctx, computed, &[split_k, self.c.len()])?;
        ctx.device().check_extent(partial.len())?;
        variant.c = (computed, self.store_kind(&partial));
        self.dispatch(work, ctx.device(), &variant, (&partial, chunk), None)?;
        let rows = self.store_kind(self.c) == StoreKind::Vec4s;
        finish::enqueue_with(work, ctx.device(), &partial, self.c, epilogue, rows)
    }

    /// Steps of the contracted index that one workgroup takes when it is to be cut into `wanted`
    /// parts: whole outer steps, or a multiple of 4 where an outer step is too long or the only
    /// one. Both respect loads in vec4s, which need `inner` to be a multiple of 4.
    pub(super) fn chunk(&self, device: &Device, wanted: usize) -> usize {
        let depth = self.outer * self.inner;
        if matches!(self.store, Store::Places { .. }) {
            return depth;
        }
        let most =
            (limit(device) as usize / element::computed(self.a.dtype).size()).min(MAX_PARTIAL);
        let by_work = wanted.min(most / self.c.len().max(1)).max(1);
        let split_k = by_work.max(depth.div_ceil(MAX_CHUNK)).min(depth);
        if self.outer > 1 && self.inner <= MAX_CHUNK {
            self.outer.div_ceil(split_k) * self.inner
        } else {
            depth.div_ceil(split_k).next_multiple_of(4)
        }
    }

    fn dispatch(
        &self,
        work: Work<'_>,
        device: &Device,
        variant: &Variant,
        (c, chunk): (&Tensor, usize),
        epilogue: Option<&Bound<'_>>,
    ) -> Result<()> {
        let depth = self.outer * self.inner;
        let split_k = depth.div_ceil(chunk);
        let tiles = variant.tile.tiles(self.m, self.n) * self.batch.len();
        let mut params = Params::new()
            .u32(self.m)
            .u32(self.n)
            .u32(tiles * split_k)
            .u32(split_k)
            .u32(chunk)
            .u32(depth);
        params = params
            .u32(self.inner)
            .u32(self.a_step)
            .u32(self.b_step)
            .u32(self.b_column)
            .u32(self.c.len());
        params = match self.rows {
            Rows::Dense { stride } => params.u32(stride),
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
        let mut bindings = smallvec![
            unit(self.a, variant.a.1 != Lanes::One),
            unit(self.b, variant.b.1 != Lanes::One),
            unit(c, variant.c.1 == StoreKind::Vec4s),
        ];
        if let (Some(epilogue), Some(form)) = (epilogue, &variant.epilogue) {
            bindings.extend(epilogue.bindings(form));
        }
        let program = Program {
            key: variant.key(),
            shader: &|| variant.shader(),
            bindings,
            params,
            grid: Grid::groups(tiles * split_k),
        };
        if variant.cooperative.is_none() {
            return work.program(device, &program);
        }
        // Found out before it is enqueued, its failure is nobody's error.
        let compiled = match work {
            Work::Compile(_) => work.program(device, &program),
            _ => device.prepare(&program),
        };
        compiled.inspect_err(|e| validation::refuse(device, e))?;
        if matches!(work, Work::Compile(_)) { Ok(()) } else { work.program(device, &program) }
    }
}
