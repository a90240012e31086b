//! What to dispatch: programs with their bindings and with the temporary memory between them. A
//! contraction that fits the bindings has a program for its tiles and, if it is cut or its result is
//! packed, one that adds the sums of its parts.
//!
//! Temporary tensors have addresses that no device has, until memory is allocated for them.

use smallvec::SmallVec;

use super::choice::Choice;
use super::epilogue::{Bound, Epilogue};
use super::shares::{Shares, Tiles, Work};
use super::tile::TileKind;
use super::walk::TileWalk;
use super::{ALayout, BLayout, Contraction, Lanes, Store, StoreKind, TileVariant, finish};
use crate::device::{
    Binding, Cooperative, Device, Dispatches, Grid, Key, Params, Profile, Program, Schedule,
    check_extent,
};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::windows::limit;
use crate::shader::Shader;
use crate::tensor::Tensor;

/// Addresses from here on are those of planned temporaries: the addresses that a process reserves
/// end below.
pub(super) const PLANNED: u64 = 1 << 63;
/// Bits of an address within one temporary.
const ROOM: u32 = 48;

/// A program with what it binds.
pub struct Dispatch {
    /// Identity of the shader.
    pub key: Key,
    /// Makes the shader.
    pub shader: Box<dyn Fn() -> Shader>,
    /// The bindings, in the shader's order.
    pub bindings: SmallVec<[Binding; 8]>,
    /// Parameters, in the shader's order.
    pub params: Params,
    /// Workgroups.
    pub grid: Grid,
    /// Floating-point operations: two for each product that is added.
    pub flops: u64,
}

impl std::fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatch")
            .field("key", &self.key)
            .field("bindings", &self.bindings)
            .field("grid", &self.grid)
            .finish_non_exhaustive()
    }
}

impl Dispatch {
    /// Enqueues it; it has no temporaries.
    pub fn enqueue(self, device: &Device) -> Result<()> {
        self.enqueue_in(device, &Places::default())
    }

    /// Enqueues it with its temporaries in `memory`.
    pub(super) fn enqueue_in(self, device: &Device, memory: &Places) -> Result<()> {
        self.with_program(memory, |program, flops| device.enqueue_counted(program, flops))
    }

    /// Calls `f` with the program, whose temporaries lie in `memory`, and with its number of
    /// floating-point operations.
    fn with_program<R>(self, memory: &Places, f: impl FnOnce(&Program<'_>, u64) -> R) -> R {
        let Self { key, shader, mut bindings, params, grid, flops } = self;
        for binding in &mut bindings {
            binding.address = memory.place(binding.address);
        }
        f(&Program { key, shader: &*shader, bindings, params, grid }, flops)
    }

    /// Calls `f` with the program as a compiler sees it: its bindings do not matter.
    fn compiled<R>(&self, f: impl FnOnce(&Program<'_>) -> R) -> R {
        f(&Program {
            key: self.key.clone(),
            shader: &*self.shader,
            bindings: self.bindings.clone(),
            params: self.params.clone(),
            grid: self.grid,
        })
    }
}

/// Temporary tensors that are planned.
#[derive(Debug, Default)]
pub(super) struct Temporaries {
    /// Bytes of each.
    bytes: SmallVec<[u64; 2]>,
    /// The number of tensors that the next step must not overwrite.
    held: usize,
}

impl Temporaries {
    /// A tensor, which lies at a multiple of 16 bytes.
    pub fn tensor(&mut self, dtype: DType, dims: &[usize]) -> Tensor {
        let address = PLANNED | (self.held as u64) << ROOM;
        let tensor = Tensor::new(dtype, dims, address);
        match self.bytes.get_mut(self.held) {
            Some(bytes) => *bytes = tensor.bytes().max(*bytes),
            None => self.bytes.push(tensor.bytes()),
        }
        self.held += 1;
        tensor
    }

    /// The number of tensors that are needed from here on.
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Later tensors take the memory of those from number `held` on.
    pub const fn hold(&mut self, held: usize) {
        self.held = held;
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes of each.
    #[cfg(test)]
    pub fn bytes(&self) -> &[u64] {
        &self.bytes
    }

    /// Allocates their memory.
    pub fn allocate(&self, ctx: &mut dyn OpContext) -> Result<Places> {
        self.allocate_by(&mut |words| Ok(ctx.temp(DType::I32, &[words])?.address))
    }

    /// The same, where `take` allocates a number of words and returns their address.
    pub fn allocate_by(&self, take: &mut dyn FnMut(usize) -> Result<u64>) -> Result<Places> {
        // Sizes are in words: an allocation of bytes is padded to whole words anyway.
        let words = self.bytes.iter().map(|bytes| bytes.div_ceil(4) as usize);
        words.map(take).collect::<Result<_>>().map(Places)
    }
}

/// Where temporaries lie.
#[derive(Debug, Default)]
pub(super) struct Places(SmallVec<[u64; 2]>);

impl Places {
    /// The address on the device of a planned one; every other address stays.
    pub fn place(&self, address: u64) -> u64 {
        if address < PLANNED {
            return address;
        }
        let (index, offset) = ((address - PLANNED) >> ROOM, address & ((1 << ROOM) - 1));
        self.0[index as usize] + offset
    }
}

/// Programs in order, and the temporaries between them.
#[derive(Debug, Default)]
pub(super) struct Programs {
    dispatches: SmallVec<[Dispatch; 1]>,
    pub temporaries: Temporaries,
}

impl From<Dispatch> for Programs {
    fn from(dispatch: Dispatch) -> Self {
        let mut programs = Self::default();
        programs.push(dispatch);
        programs
    }
}

impl Programs {
    /// Appends a program.
    pub fn push(&mut self, dispatch: Dispatch) {
        self.dispatches.push(dispatch);
    }

    /// The programs.
    #[cfg(test)]
    pub fn iter(&self) -> std::slice::Iter<'_, Dispatch> {
        self.dispatches.iter()
    }

    /// The dispatches of `device`, with `memory` for the temporaries. With `later`, shaders are
    /// compiled later, as by [`Device::gather`].
    pub fn gather(self, device: &Device, memory: &Places, later: bool) -> Result<Dispatches> {
        let mut dispatches = Dispatches::default();
        for dispatch in self.dispatches {
            dispatch.with_program(memory, |program, flops| {
                device.gather(&mut dispatches, program, flops, later)
            })?;
        }
        Ok(dispatches)
    }

    /// The same on a device other than the operands' own. `place` gives the operands' addresses
    /// there.
    pub fn gather_on(
        mut self,
        device: &Device,
        memory: &Places,
        place: &mut dyn FnMut(&Binding) -> Result<u64>,
    ) -> Result<Dispatches> {
        let bindings = self.dispatches.iter_mut().flat_map(|dispatch| &mut dispatch.bindings);
        for binding in bindings.filter(|binding| binding.address < PLANNED) {
            binding.address = place(binding)?;
        }
        self.gather(device, memory, false)
    }

    /// Whether all programs are compiled; the first call starts their compilation.
    pub fn is_ready(&self, device: &Device) -> Result<bool> {
        self.dispatches
            .iter()
            .map(|dispatch| dispatch.compiled(|program| device.is_ready(program)))
            .try_fold(true, |all, ready| Ok(ready? && all))
    }

    /// Compiles all programs, or waits until they are compiled.
    pub fn prepare(&self, device: &Device) -> Result<()> {
        self.dispatches.iter().try_for_each(|d| d.compiled(|program| device.prepare(program)))
    }
}

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
        let more = epilogue.map_or(0, Bound::tensors) + 2 * self.others().len();
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
        if variant.walk != TileWalk::FixUp {
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
    fn flops(&self, variant: &TileVariant) -> u64 {
        if variant.walk == TileWalk::FixUp {
            return 0;
        }
        let results = self.m * self.n * self.batch.len() * variant.parts;
        self.a.dtype.product_flops(results * self.depth())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_keep_their_distance() {
        let memory = Places(smallvec::smallvec![1000, 5000]);
        assert_eq!(memory.place(77), 77);
        assert_eq!(memory.place(PLANNED + 8), 1008);
        assert_eq!(memory.place((PLANNED | 1 << ROOM) + 16), 5016);
    }
}
