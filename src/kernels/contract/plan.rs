//! The steps of contractions and convolutions: what to compute. A plan is made from shapes, types,
//! addresses and an adapter's profile, without a device. When it is enqueued, a tile is chosen for
//! each of its contractions, which gives their [`programs`](super::programs): what to dispatch.

use smallvec::SmallVec;

use super::epilogue::Bound;
use super::programs::{Dispatch, Temporaries};
use super::{Contraction, Store, StoreKind, choices, run, tuned};
use crate::device::{Profile, check_extent};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::windows::{Scratch, limit};
use crate::tensor::{Dims, Tensor};

/// Steps in order, over operands and temporaries.
#[derive(Debug, Default)]
pub struct ProductPlan<'e> {
    steps: SmallVec<[Step<'e>; 1]>,
    temporaries: Temporaries,
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

impl From<Dispatch> for ProductPlan<'_> {
    /// The plan of one program.
    fn from(dispatch: Dispatch) -> Self {
        let mut plan = Self::new();
        plan.dispatch(dispatch);
        plan
    }
}

impl<'e> ProductPlan<'e> {
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
        self.push(Step::Contract(Box::new(c.widened()), epilogue));
        Ok(())
    }

    /// Appends a program.
    pub fn dispatch(&mut self, dispatch: Dispatch) {
        self.push(Step::Dispatch(dispatch));
    }

    /// A temporary tensor, which lies at a multiple of 16 bytes.
    pub fn temporary(&mut self, dtype: DType, dims: &[usize]) -> Tensor {
        self.temporaries.tensor(dtype, dims)
    }

    /// Lets `f` append steps whose temporaries are not needed afterwards: steps run in order, so
    /// the next ones reuse that memory.
    pub fn window<R>(&mut self, f: impl FnOnce(&mut Self) -> R) -> R {
        let held = self.temporaries.held();
        let result = f(self);
        self.temporaries.hold(held);
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

    /// The contraction, with its epilogue, of a plan that consists of nothing else.
    pub(super) fn contraction(&self) -> Option<(&Contraction, Option<&Bound<'e>>)> {
        match &self.steps[..] {
            [Step::Contract(c, epilogue)] if self.temporaries.is_empty() => {
                Some((c, epilogue.as_ref()))
            }
            _ => None,
        }
    }

    /// The steps.
    pub fn steps(&self) -> &[Step<'e>] {
        &self.steps
    }

    /// Enqueues all steps.
    pub fn enqueue(self, ctx: &mut dyn OpContext) -> Result<()> {
        let memory = self.temporaries.allocate(ctx)?;
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
                    for tensor in [&mut c.a, &mut c.b, &mut c.c] {
                        tensor.address = memory.place(tensor.address);
                    }
                    enqueue(&c, scratch.window(), epilogue.as_ref())?;
                }
                Step::Dispatch(dispatch) => dispatch.enqueue_in(device, &memory)?,
            }
        }
        Ok(())
    }

    /// The steps that are programs.
    #[cfg(test)]
    pub fn dispatches(&self) -> impl Iterator<Item = &Dispatch> {
        self.steps.iter().filter_map(|step| match step {
            Step::Dispatch(dispatch) => Some(dispatch),
            _ => None,
        })
    }

    /// Bytes of each temporary.
    #[cfg(test)]
    pub fn temporaries(&self) -> &[u64] {
        self.temporaries.bytes()
    }
}

impl Contraction {
    /// Enqueues the contraction; every element of `c` is written. An empty contracted index gives
    /// zeros.
    pub fn enqueue(self, ctx: &mut dyn OpContext) -> Result<()> {
        self.plan(&ctx.device().profile(), None)?.enqueue(ctx)
    }

    /// The plan of the contraction, with an epilogue if there is one; that needs a contracted index
    /// that is not empty.
    pub fn plan<'e>(
        self,
        profile: &Profile,
        epilogue: Option<Bound<'e>>,
    ) -> Result<ProductPlan<'e>> {
        let mut plan = ProductPlan::new();
        self.add_to(&mut plan, profile, epilogue)?;
        Ok(plan)
    }

    /// Appends [`Contraction::plan`] to a plan.
    pub fn add_to<'e>(
        self,
        plan: &mut ProductPlan<'e>,
        profile: &Profile,
        epilogue: Option<Bound<'e>>,
    ) -> Result<()> {
        if self.c.is_empty() {
            return Ok(());
        }
        // An empty operand has no element to clamp a load to.
        if self.depth() == 0 || self.a.is_empty() || self.b.is_empty() {
            debug_assert!(epilogue.is_none(), "no epilogue without products");
            plan.push(Step::Zero(self.c));
            return Ok(());
        }
        if !self.fits(limit(&profile.capabilities), epilogue.as_ref()) {
            return self.add_windows(plan, profile, epilogue.as_ref());
        }
        plan.contract(self, epilogue)
    }

    /// Whether all tensors fit a binding each, with partial sums.
    pub(super) fn fits(&self, limit: u64, epilogue: Option<&Bound<'_>>) -> bool {
        let slices = match self.store {
            Store::Places { .. } => 1,
            _ => (self.outer * self.inner).div_ceil(Self::LONGEST_WHOLE),
        };
        let direct = slices == 1
            && (self.c.dtype.lanes() == 1 || self.store_kind(&self.c) == StoreKind::Vec4s);
        let sums = if direct { 0 } else { slices * self.a.dtype.accumulator().size() };
        let widest = epilogue.map_or(self.c.dtype.size(), Bound::widest).max(sums);
        self.a.bytes() <= limit
            && self.b.bytes() <= limit
            && (self.c.len() * widest) as u64 <= limit
    }
}

/// Chooses the tile of a contraction that fits the bindings, and enqueues its programs.
fn enqueue(c: &Contraction, ctx: &mut dyn OpContext, epilogue: Option<&Bound<'_>>) -> Result<()> {
    let profile = ctx.device().profile();
    let cooperative = run::usable(ctx.device(), c.a.dtype, c.b_type());
    let tuner = ctx.device().tuner().filter(|_| profile.tile == 0).cloned();
    let done = match tuner {
        Some(tuner) => {
            let demand = c.demand(profile, cooperative);
            tuned::enqueue(c, ctx, &tuner, &demand, cooperative, epilogue)
        }
        None => {
            let choice = choices::of(ctx.device(), c, c.batch.len(), cooperative);
            run::enqueue(c, ctx, choice, cooperative, epilogue)
        }
    };
    match done {
        // Cooperative matrices turned out to be unusable: go on without them.
        Err(_)
            if cooperative.is_some()
                && run::usable(ctx.device(), c.a.dtype, c.b_type()).is_none() =>
        {
            enqueue(c, ctx, epilogue)
        }
        done => done,
    }
}

/// An op of two operands that takes an epilogue.
pub trait Product: Send + Sync {
    /// The result's shape, or TensorFlow's error.
    fn shape(&self, a: &[usize], b: &[usize]) -> Result<Dims>;

    /// The result's type for operands of type `a`, without an epilogue.
    fn result(&self, a: DType) -> DType {
        a
    }

    /// The dimension of the channels in a result of shape `dims`.
    fn channel(&self, dims: &[usize]) -> usize;

    /// The number of tensors that it binds besides the operands.
    fn parameters(&self) -> usize {
        0
    }

    /// The plan for a result that is not empty, from operands a and b to the result. An epilogue
    /// needs operands that are not empty.
    fn plan<'e>(
        &self,
        profile: &Profile,
        operands: [&Tensor; 3],
        epilogue: Option<Bound<'e>>,
    ) -> Result<ProductPlan<'e>>;

    /// The op without an epilogue, from inputs 0 and 1.
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (a, b) = (ctx.input(0)?, ctx.input(1)?);
        let Some(c) = ctx.some_output(0, self.result(a.dtype), &self.shape(&a.dims, &b.dims)?)?
        else {
            return Ok(());
        };
        self.plan(&ctx.device().profile(), [&a, &b, &c], None)?.enqueue(ctx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::choice::choose;
    use super::super::programs::{PLANNED, Programs};
    use super::super::weights::{CodePacking, QuantizedWeights};
    use super::*;
    use crate::device::{Capabilities, Grid, Profile, Schedule};
    use crate::kernels::contract::Store;
    use crate::kernels::windows::limit;

    const A: u64 = 1 << 40;
    const B: u64 = 2 << 40;
    const C: u64 = 3 << 40;

    /// The product of two matrices of `dtype`, whose result lies at `c`.
    fn product(dtype: DType, [m, k, n]: [usize; 3], c: u64) -> Contraction {
        let of = |dims: [usize; 2], address| Tensor::new(dtype, &dims, address);
        Contraction::product([m, k, n], [&of([m, k], A), &of([k, n], B), &of([m, n], c)])
    }

    /// An adapter that binds `max_binding` bytes at once.
    fn binding(max_binding: u64) -> Profile {
        let capabilities = Capabilities { max_binding, ..Profile::NVIDIA.capabilities };
        Profile { capabilities, ..Profile::NVIDIA }
    }

    /// The programs of the estimate's choice.
    fn programs(c: &Contraction, profile: &Profile) -> Programs {
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
        let [dispatch] = plan.iter().collect::<Vec<_>>()[..] else { panic!("{plan:?}") };
        let tile = choose(&c.demand(Profile::NVIDIA, None)).tile;
        assert_eq!(dispatch.grid, Grid::groups(tile.tiles(512, 256)));
        assert_eq!(addresses(dispatch), [A, B, C]);
        assert!(plan.temporaries.bytes().is_empty());
    }

    #[test]
    fn the_parts_of_a_long_product_go_to_a_temporary_and_are_added() {
        let c = product(DType::F32, [8, 100_000, 8], C);
        let plan = programs(&c, &Profile::NVIDIA);
        let [parts, finish] = plan.iter().collect::<Vec<_>>()[..] else { panic!("{plan:?}") };
        let chunk = c.chunk(u64::MAX, choose(&c.demand(Profile::NVIDIA, None)).split_k);
        let split_k = 100_000_usize.div_ceil(chunk);
        assert!(split_k > 1);
        assert_eq!(plan.temporaries.bytes(), [split_k as u64 * 64 * 4]);
        assert_eq!(addresses(parts), [A, B, PLANNED]);
        assert_eq!(addresses(finish), [PLANNED, C]);
    }

    /// A second program adds up the tiles that shares cut; it needs the result and the parts' sums.
    #[test]
    fn shares_of_tiles_take_a_second_program_where_they_cut_them() {
        let of = |schedule| Profile { schedule: Some(schedule), ..Profile::NVIDIA };
        let c = product(DType::F32, [17 * 128, 4096, 17 * 128], C);
        let plan = programs(&c, &of(Schedule::StreamK));
        let [shares, fix_up] = plan.iter().collect::<Vec<_>>()[..] else { panic!("{plan:?}") };
        let tile = choose(&c.demand(Profile::NVIDIA, None)).tile;
        let workgroups = Profile::NVIDIA.resident_workgroups * 256 / tile.threads() as usize;
        assert_eq!(
            (shares.grid, fix_up.grid),
            (Grid::groups(workgroups), Grid::groups(workgroups - 1))
        );
        assert_eq!(addresses(shares), [A, B, C, PLANNED]);
        assert_eq!(addresses(fix_up), [C, PLANNED]);
        assert_eq!(plan.temporaries.bytes(), [(2 * workgroups * tile.m() * tile.n() * 4) as u64]);
        let plan = programs(&c, &of(Schedule::Persistent));
        let [dispatch] = plan.iter().collect::<Vec<_>>()[..] else { panic!("{plan:?}") };
        assert_eq!((dispatch.grid, addresses(dispatch)), (Grid::groups(workgroups), vec![A, B, C]));
        // On a software adapter nothing forces them.
        let software = Profile { schedule: Some(Schedule::StreamK), ..Profile::LLVMPIPE };
        assert_eq!(programs(&c, &software).iter().count(), 1);
    }

    /// Where the number of columns is odd, the two elements of a word belong to two invocations.
    #[test]
    fn packed_results_of_odd_columns_are_stored_by_a_second_program() {
        for (n, programs_wanted) in [(64, 1), (63, 2)] {
            let plan = programs(&product(DType::F16, [64, 32, n], C), &Profile::INTEL);
            assert_eq!(plan.iter().count(), programs_wanted, "{n} columns");
            assert_eq!(plan.temporaries.bytes().len(), programs_wanted - 1, "{n} columns");
        }
    }

    #[test]
    fn a_result_of_few_columns_is_transposed() {
        let plan = product(DType::F32, [1000, 64, 1], C).plan(&Profile::NVIDIA, None).unwrap();
        let [Step::Contract(c, None)] = plan.steps() else { panic!("{plan:?}") };
        assert_eq!((c.m, c.n, c.a.address, c.b.address), (1, 1000, B, A));
        assert_eq!(c.store, Store::Columns(1));
    }

    /// Quantized weights are read as they are packed: a product of one row moves little else. The
    /// gradient of its inputs reads the same bytes.
    #[test]
    fn a_product_with_quantized_weights_reads_their_bytes() {
        let of = |dtype, dims: &[usize], at: u64| Tensor::new(dtype, dims, at << 40);
        let decoder = Arc::new("- gc, * gc".parse().unwrap());
        for (rows, [k, n], block) in
            [(1, [2048, 8192], 128), (1, [2049, 8191], 64), (4, [512, 96], 32)]
        {
            let codes = of(DType::I8, &[k, n.div_ceil(2)], 2);
            let groups = [k.div_ceil(block), n];
            let parameters =
                [of(DType::I8, &groups, 4), of(DType::F32, &groups, 5), of(DType::F32, &[k], 6)];
            for by_columns in [false, true] {
                let weights = QuantizedWeights::new(
                    (CodePacking::Columns, &decoder, n),
                    &codes.dims,
                    &parameters,
                    (DType::F32, by_columns),
                );
                let [inner, columns] = if by_columns { [n, k] } else { [k, n] };
                let (x, y) =
                    (of(DType::F32, &[rows, inner], 1), of(DType::F32, &[rows, columns], 3));
                let c = Contraction::product([rows, inner, columns], [&x, &codes, &y])
                    .quantized(weights.unwrap());
                let least =
                    [&x, &codes, &y].into_iter().chain(&parameters).map(Tensor::bytes).sum();
                for profile in Profile::DISTINCT {
                    let made = programs(&c, &profile);
                    let bound = made.iter().flat_map(|dispatch| dispatch.bindings.iter());
                    let moved: u64 = bound.map(|binding| binding.bytes).sum();
                    assert!((least..least + least / 10).contains(&moved), "{moved} for {least}");
                }
            }
        }
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
        let mut plan = ProductPlan::new();
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
}
