//! The steps that contractions and convolutions are about to run. A plan is made from shapes,
//! types, addresses and an adapter's profile, without a device; then it is enqueued, or its
//! programs are compiled.
//!
//! Temporary tensors have addresses that no device has, until the plan is enqueued and memory is
//! allocated for them.

use smallvec::SmallVec;

use super::epilogue::Bound;
use super::{Contraction, narrow};
use crate::device::{Binding, Device, Dispatches, Grid, Key, Params, Program, check_extent};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::windows::Scratch;
use crate::shader::Shader;
use crate::tensor::Tensor;

/// Addresses from here on are those of planned temporaries: the addresses that a process reserves
/// end below.
const PLANNED: u64 = 1 << 63;
/// Bits of an address within one temporary.
const ROOM: u32 = 48;

/// Steps in order, over operands and temporaries.
#[derive(Debug, Default)]
pub struct Plan<'e> {
    steps: SmallVec<[Step<'e>; 1]>,
    /// Bytes of each temporary.
    temporaries: SmallVec<[u64; 2]>,
    /// Temporaries that the next step must not overwrite.
    held: usize,
}

/// A step of a plan.
#[derive(Debug)]
pub enum Step<'e> {
    /// All elements become zero.
    Zero(Tensor),
    /// The elements of the first tensor are copied to the second one.
    Copy(Tensor, Tensor),
    /// A contraction that fits the bindings, with the epilogue of its result. Its tile is chosen
    /// when it is enqueued.
    Contract(Box<Contraction>, Option<Bound<'e>>),
    /// A program.
    Dispatch(Dispatch),
}

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
        self.enqueue_in(device, &Temporaries::default())
    }

    /// Enqueues it with its temporaries in `memory`.
    fn enqueue_in(self, device: &Device, memory: &Temporaries) -> Result<()> {
        self.with_program(memory, |program, flops| device.enqueue_counted(program, flops))
    }

    /// Calls `f` with the program, whose temporaries lie in `memory`, and with its number of
    /// floating-point operations.
    fn with_program<R>(self, memory: &Temporaries, f: impl FnOnce(&Program<'_>, u64) -> R) -> R {
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

/// Where the temporaries of a plan lie.
#[derive(Debug, Default)]
pub(super) struct Temporaries(SmallVec<[u64; 2]>);

impl Temporaries {
    fn place(&self, address: u64) -> u64 {
        if address < PLANNED {
            return address;
        }
        let (index, offset) = ((address - PLANNED) >> ROOM, address & ((1 << ROOM) - 1));
        self.0[index as usize] + offset
    }

    fn tensor(&self, mut t: Tensor) -> Tensor {
        t.address = self.place(t.address);
        t
    }
}

impl From<Dispatch> for Plan<'_> {
    /// The plan of one program.
    fn from(dispatch: Dispatch) -> Self {
        let mut plan = Self::new();
        plan.dispatch(dispatch);
        plan
    }
}

impl<'e> Plan<'e> {
    /// A plan without steps.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a step.
    pub fn push(&mut self, step: Step<'e>) {
        self.steps.push(step);
    }

    /// Appends a contraction that fits the bindings.
    pub(super) fn contract(&mut self, c: Contraction, epilogue: Option<Bound<'e>>) -> Result<()> {
        for extent in [c.a.len(), c.b.len(), c.c.len(), c.m * 2, 2 * c.depth()] {
            check_extent(extent)?;
        }
        self.push(Step::Contract(Box::new(narrow::widened(c)), epilogue));
        Ok(())
    }

    /// Appends a program.
    pub fn dispatch(&mut self, dispatch: Dispatch) {
        self.push(Step::Dispatch(dispatch));
    }

    /// A temporary tensor, which lies at a multiple of 16 bytes.
    pub fn temporary(&mut self, dtype: DType, dims: &[usize]) -> Tensor {
        let address = PLANNED | (self.held as u64) << ROOM;
        let tensor = Tensor::new(dtype, dims, address);
        match self.temporaries.get_mut(self.held) {
            Some(bytes) => *bytes = tensor.bytes().max(*bytes),
            None => self.temporaries.push(tensor.bytes()),
        }
        self.held += 1;
        tensor
    }

    /// Lets `f` append steps whose temporaries are not needed afterwards: steps run in order, so
    /// the next ones reuse that memory.
    pub fn window<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let held = self.held;
        let result = f(self);
        self.held = held;
        result
    }

    /// Lets `f` append the steps that write `y`, a range of a result. Programs store whole words: a
    /// range of packed elements that begins within a word is written to temporary memory first. A
    /// program may store beyond the end of its range. The next window overwrites those elements, so
    /// windows go upwards.
    pub fn write(
        &mut self,
        y: &Tensor,
        f: impl FnOnce(&mut Self, &Tensor) -> Result<()>,
    ) -> Result<()> {
        if y.address.is_multiple_of(4) {
            return f(self, y);
        }
        let whole = self.temporary(y.dtype, &y.dims);
        f(self, &whole)?;
        self.push(Step::Copy(whole, y.clone()));
        Ok(())
    }

    /// Whether the plan is one contraction that stores four elements of its result at once, as an
    /// epilogue with a second value needs. `second` is the tensor of that value.
    pub fn stores_pairs(&self, second: &Tensor) -> bool {
        let four = second.address.is_multiple_of(4 * second.dtype.size() as u64);
        matches!(&self.steps[..], [Step::Contract(c, _)] if four && c.stores_vec4s())
    }

    /// The steps.
    pub fn steps(&self) -> &[Step<'e>] {
        &self.steps
    }

    /// Bytes of each temporary.
    pub fn temporaries(&self) -> &[u64] {
        &self.temporaries
    }

    /// Allocates memory for the temporaries.
    pub(super) fn memory(&self, ctx: &mut dyn OpContext) -> Result<Temporaries> {
        self.memory_by(&mut |words| Ok(ctx.temp(DType::I32, &[words])?.address))
    }

    /// The same, where `take` allocates a number of words and returns their address.
    pub(super) fn memory_by(
        &self,
        take: &mut dyn FnMut(usize) -> Result<u64>,
    ) -> Result<Temporaries> {
        // Sizes are in words: an allocation of bytes is padded to whole words anyway.
        let words = self.temporaries.iter().map(|bytes| bytes.div_ceil(4) as usize);
        words.map(take).collect::<Result<_>>().map(Temporaries)
    }

    /// Enqueues all steps with `memory` for the temporaries. `contract` enqueues contractions.
    pub(super) fn enqueue_in(
        self,
        ctx: &mut dyn OpContext,
        memory: &Temporaries,
        contract: impl Fn(&mut dyn OpContext, &Contraction, Option<&Bound<'_>>) -> Result<()>,
    ) -> Result<()> {
        let mut scratch = Scratch::new(ctx);
        for step in self.steps {
            let device = scratch.device();
            match step {
                Step::Zero(t) => device.fill(memory.place(t.address), t.bytes(), 0)?,
                Step::Copy(from, to) => {
                    let (from, at) = (memory.place(from.address), memory.place(to.address));
                    device.copy(at, from, to.bytes())?;
                }
                Step::Contract(mut c, epilogue) => {
                    c.a = memory.tensor(c.a);
                    c.b = memory.tensor(c.b);
                    c.c = memory.tensor(c.c);
                    contract(scratch.window(), &c, epilogue.as_ref())?;
                }
                Step::Dispatch(dispatch) => dispatch.enqueue_in(device, memory)?,
            }
        }
        Ok(())
    }

    /// Adds its programs to `dispatches`, with `memory` for the temporaries. With `later`, shaders
    /// are compiled later, as by [`Device::gather`].
    pub(super) fn gather(
        self,
        device: &Device,
        memory: &Temporaries,
        later: bool,
    ) -> Result<Dispatches> {
        let mut dispatches = Dispatches::default();
        for step in self.steps {
            let Step::Dispatch(dispatch) = step else {
                unreachable!("a choice has programs alone: {step:?}")
            };
            dispatch.with_program(memory, |program, flops| {
                device.gather(&mut dispatches, program, flops, later)
            })?;
        }
        Ok(dispatches)
    }

    /// The same on a device other than the operands' own. `place` gives the operands' addresses
    /// there.
    pub(super) fn gather_on(
        self,
        device: &Device,
        memory: &Temporaries,
        place: &mut dyn FnMut(&Binding) -> Result<u64>,
    ) -> Result<Dispatches> {
        let mut plan = self;
        for step in &mut plan.steps {
            if let Step::Dispatch(dispatch) = step {
                for binding in dispatch.bindings.iter_mut().filter(|b| b.address < PLANNED) {
                    binding.address = place(binding)?;
                }
            }
        }
        plan.gather(device, memory, false)
    }

    /// Whether all its programs are compiled; the first call starts their compilation. Not for
    /// plans with contractions, whose programs are not chosen yet.
    pub(super) fn is_ready(&self, device: &Device) -> Result<bool> {
        self.programs()
            .map(|dispatch| dispatch.compiled(|program| device.is_ready(program)))
            .try_fold(true, |all, ready| Ok(ready? && all))
    }

    /// Compiles all its programs, or waits until they are; see [`Plan::is_ready`].
    pub(super) fn prepare(&self, device: &Device) -> Result<()> {
        self.programs().try_for_each(|d| d.compiled(|program| device.prepare(program)))
    }

    /// The steps that are programs.
    pub fn programs(&self) -> impl Iterator<Item = &Dispatch> {
        self.steps.iter().filter_map(|step| match step {
            Step::Dispatch(dispatch) => Some(dispatch),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Capabilities, Profile, Schedule};
    use crate::kernels::contract::choice::choose;
    use crate::kernels::contract::{Lines, Rows, Store};
    use crate::kernels::windows::limit;
    use crate::layout::Iteration;

    const A: u64 = 1 << 40;
    const B: u64 = 2 << 40;
    const C: u64 = 3 << 40;

    /// The product of two matrices of `dtype`, whose result lies at `c`.
    fn product(dtype: DType, [m, k, n]: [usize; 3], c: u64) -> Contraction {
        Contraction {
            m,
            n,
            outer: 1,
            inner: k,
            batch: Iteration::over(&[]).operand(&[], 0).operand(&[], 0).operand(&[], 0),
            a: Tensor::new(dtype, &[m, k], A),
            rows: Rows::Dense { stride: k },
            a_step: 1,
            a_matrix: m * k,
            b: Tensor::new(dtype, &[k, n], B),
            lines: Lines::Dense,
            b_step: n,
            b_column: 1,
            b_matrix: k * n,
            c: Tensor::new(dtype, &[m, n], c),
            store: Store::Rows(n),
            c_matrix: m * n,
            conjugated: [false; 2],
        }
    }

    /// An adapter that binds `max_binding` bytes at once.
    fn binding(max_binding: u64) -> Profile {
        let capabilities = Capabilities { max_binding, ..Profile::NVIDIA.capabilities };
        Profile { capabilities, ..Profile::NVIDIA }
    }

    /// The programs of the estimate's choice.
    fn programs(c: &Contraction, profile: &Profile) -> Plan<'static> {
        let choice = choose(&c.demand(*profile, None));
        c.programs(choice, None, None, profile).unwrap()
    }

    fn addresses(dispatch: &Dispatch) -> Vec<u64> {
        dispatch.bindings.iter().map(|b| b.address).collect()
    }

    #[test]
    fn a_product_is_one_program_with_a_workgroup_for_each_tile() {
        let c = product(DType::F32, [512, 64, 256], C);
        let plan = programs(&c, &Profile::NVIDIA);
        let [dispatch] = plan.programs().collect::<Vec<_>>()[..] else { panic!("{plan:?}") };
        let tile = choose(&c.demand(Profile::NVIDIA, None)).tile;
        assert_eq!(dispatch.grid, Grid::groups(tile.tiles(512, 256)));
        assert_eq!(addresses(dispatch), [A, B, C]);
        assert!(plan.temporaries().is_empty());
    }

    #[test]
    fn the_parts_of_a_long_product_go_to_a_temporary_and_are_added() {
        let c = product(DType::F32, [8, 100_000, 8], C);
        let plan = programs(&c, &Profile::NVIDIA);
        let [parts, finish] = plan.programs().collect::<Vec<_>>()[..] else { panic!("{plan:?}") };
        let chunk = c.chunk(u64::MAX, choose(&c.demand(Profile::NVIDIA, None)).split_k);
        let split_k = 100_000_usize.div_ceil(chunk);
        assert!(split_k > 1);
        assert_eq!(plan.temporaries(), [split_k as u64 * 64 * 4]);
        assert_eq!(addresses(parts), [A, B, PLANNED]);
        assert_eq!(addresses(finish), [PLANNED, C]);
    }

    /// A second program adds up the tiles that shares cut; it needs the result and the parts' sums.
    #[test]
    fn shares_of_tiles_take_a_second_program_where_they_cut_them() {
        let of = |schedule| Profile { schedule: Some(schedule), ..Profile::NVIDIA };
        let c = product(DType::F32, [17 * 128, 4096, 17 * 128], C);
        let plan = programs(&c, &of(Schedule::StreamK));
        let [shares, fix_up] = plan.programs().collect::<Vec<_>>()[..] else { panic!("{plan:?}") };
        let tile = choose(&c.demand(Profile::NVIDIA, None)).tile;
        let workgroups = Profile::NVIDIA.resident_workgroups * 256 / tile.threads() as usize;
        assert_eq!(
            (shares.grid, fix_up.grid),
            (Grid::groups(workgroups), Grid::groups(workgroups - 1))
        );
        assert_eq!(addresses(shares), [A, B, C, PLANNED]);
        assert_eq!(addresses(fix_up), [C, PLANNED]);
        assert_eq!(plan.temporaries(), [(2 * workgroups * tile.m() * tile.n() * 4) as u64]);
        let plan = programs(&c, &of(Schedule::Persistent));
        let [dispatch] = plan.programs().collect::<Vec<_>>()[..] else { panic!("{plan:?}") };
        assert_eq!((dispatch.grid, addresses(dispatch)), (Grid::groups(workgroups), vec![A, B, C]));
        // On a software adapter nothing forces them.
        let software = Profile { schedule: Some(Schedule::StreamK), ..Profile::LLVMPIPE };
        assert_eq!(programs(&c, &software).programs().count(), 1);
    }

    /// Where the number of columns is odd, the two elements of a word belong to two invocations.
    #[test]
    fn packed_results_of_odd_columns_are_stored_by_a_second_program() {
        for (n, programs_wanted) in [(64, 1), (63, 2)] {
            let plan = programs(&product(DType::F16, [64, 32, n], C), &Profile::INTEL);
            assert_eq!(plan.programs().count(), programs_wanted, "{n} columns");
            assert_eq!(plan.temporaries().len(), programs_wanted - 1, "{n} columns");
        }
    }

    #[test]
    fn a_result_of_few_columns_is_transposed() {
        let plan = product(DType::F32, [1000, 64, 1], C).plan(&Profile::NVIDIA, None).unwrap();
        let [Step::Contract(c, None)] = plan.steps() else { panic!("{plan:?}") };
        assert_eq!((c.m, c.n, c.a.address, c.b.address), (1, 1000, B, A));
        assert_eq!(c.store, Store::Columns(1));
    }

    #[test]
    fn a_product_of_no_steps_is_zeros() {
        let plan = product(DType::F32, [5, 0, 6], C).plan(&Profile::NVIDIA, None).unwrap();
        assert!(matches!(plan.steps(), [Step::Zero(c)] if c.address == C && c.len() == 30));
    }

    /// Each element of the result is written once, and nothing larger than a binding is bound.
    #[test]
    fn a_product_beyond_the_bindings_is_cut() {
        let profile = binding(1 << 16);
        let limit = limit(&profile.capabilities);
        for extents in [[1000, 64, 300], [10, 70_000, 20], [3, 9, 40_000], [30_000, 5, 7]] {
            let whole = product(DType::F32, extents, C);
            let end = C + whole.c.bytes();
            let plan = whole.plan(&profile, None).unwrap();
            let mut at = C;
            let mut wrote = |t: &Tensor| {
                if t.address < PLANNED {
                    assert_eq!(t.address, at, "{extents:?}");
                    at += t.bytes();
                }
            };
            for step in plan.steps() {
                match step {
                    Step::Contract(c, None) => {
                        for t in [&c.a, &c.b, &c.c] {
                            assert!(t.bytes() <= limit, "{extents:?}: {t:?}");
                        }
                        wrote(&c.c);
                    }
                    Step::Dispatch(d) => {
                        let y = d.bindings[1];
                        wrote(&Tensor::new(DType::F32, &[y.bytes as usize / 4], y.address));
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(at, end, "{extents:?}");
        }
    }

    /// Windows that begin within a word are computed apart, one after the other in the same memory.
    #[test]
    fn windows_within_words_are_copied() {
        let rows = 1 << 15;
        let plan = product(DType::F16, [rows, 3, 9], C + 2).plan(&binding(1 << 16), None).unwrap();
        let copies = plan.steps().iter().filter(|s| matches!(s, Step::Copy(..))).count();
        assert!(copies > 2, "{plan:?}");
        assert_eq!(plan.temporaries().len(), 1);
    }

    #[test]
    fn temporaries_of_windows_share_memory() {
        let mut plan = Plan::new();
        let kept = plan.temporary(DType::F32, &[10]);
        let first = plan.window(|plan| plan.temporary(DType::F32, &[4]));
        let second = plan.window(|plan| {
            let second = plan.temporary(DType::F32, &[100]);
            assert_ne!(plan.temporary(DType::F32, &[1]).address, second.address);
            second
        });
        assert_eq!(plan.temporaries(), [40, 400, 4]);
        assert_eq!(first.address, second.address);
        assert_ne!(first.address, kept.address);
    }

    #[test]
    fn places_keep_their_distance() {
        let memory = Temporaries(smallvec::smallvec![1000, 5000]);
        assert_eq!(memory.place(77), 77);
        assert_eq!(memory.place(PLANNED + 8), 1008);
        assert_eq!(memory.place((PLANNED | 1 << ROOM) + 16), 5016);
    }
}
