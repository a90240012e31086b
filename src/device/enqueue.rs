//! Turns programs into dispatches: resolves their bindings and cuts long ones. Some have another
//! program in reserve, in case the driver refuses them.

use smallvec::SmallVec;

use super::capture::{self, Captured};
use super::memory::Blocks;
use super::pending::{Effort, Plan, Together, Waiting};
use super::probe::Asked;
use super::program::{Binding, Program};
use super::recorder::{Bound, Dispatch, Recorder};
use super::{Device, pace, parts};
use crate::dtype::Operations;
use crate::error::{Error, Result};

/// Programs that are gathered in order, to be enqueued together.
#[derive(Default)]
pub struct Dispatches(Together<Recorder>);

impl Device {
    /// Whether the shader of `program` is compiled. The first call starts the compilation. An error
    /// of it is returned here, and raised nowhere else.
    pub fn is_ready(&self, program: &Program<'_>) -> Result<bool> {
        match self.pipelines.get(program)?.get() {
            Some(compiled) => compiled.as_ref().map(|_| true).map_err(Clone::clone),
            None => Ok(false),
        }
    }

    /// Waits until the shader of `program` is compiled, and starts the compilation if necessary. An
    /// error of it is returned here, and raised nowhere else.
    pub fn prepare(&self, program: &Program<'_>) -> Result<()> {
        self.pipelines.get(program)?.wait().as_ref().map(drop).map_err(Clone::clone)
    }

    /// Enqueues a dispatch after everything enqueued before.
    pub fn enqueue(&self, program: &Program<'_>) -> Result<()> {
        self.enqueue_counted(program, 0)
    }

    /// Like [`Device::enqueue`], for a program that does these operations; a number is one of
    /// operations on floats, which profiles report. Sums, products, comparisons and function calls
    /// count one each, however a GPU computes them.
    pub fn enqueue_counted(
        &self,
        program: &Program<'_>,
        operations: impl Into<Operations>,
    ) -> Result<()> {
        let bytes = program.bindings.iter().map(|b| b.bytes).sum();
        self.enqueue_table(program, Vec::new(), bytes, operations)
    }

    /// Like [`Device::enqueue`], for a program that touches `bytes` of its bindings: it reads or
    /// writes few elements of a large one.
    pub fn enqueue_touching(&self, program: &Program<'_>, bytes: u64) -> Result<()> {
        self.enqueue_table(program, Vec::new(), bytes, 0)
    }

    /// Like [`Device::enqueue_counted`], for a program that touches `bytes` of its bindings. If
    /// `table` is not empty, the program has one more binding, in front of the others: an array of
    /// `u32` that holds the table. The table travels with the submission. So a table that changes
    /// from step to step needs neither memory of its own nor new bind groups.
    pub fn enqueue_table(
        &self,
        program: &Program<'_>,
        table: Vec<u32>,
        bytes: u64,
        operations: impl Into<Operations>,
    ) -> Result<()> {
        let operations = operations.into();
        let bytes = size_of_val(&*table) as u64 + bytes;
        let count = self.count_of_parts(program, bytes, operations);
        if count == 1 {
            let dispatch = self.resolved(program, table, bytes, operations, false)?;
            return self.hand_in(dispatch);
        }
        let (bytes, operations) = (bytes.div_ceil(count as u64), operations.part(count as u64));
        each_part(program, count, &mut |part| {
            let dispatch = self.resolved(part, table.clone(), bytes, operations, false)?;
            self.hand_in(dispatch)
        })
    }

    /// Adds a program to `dispatches`. The compilation of its shader starts now, or, if `later`,
    /// when the shader is needed.
    pub fn gather(
        &self,
        dispatches: &mut Dispatches,
        program: &Program<'_>,
        operations: impl Into<Operations>,
        later: bool,
    ) -> Result<()> {
        let operations = operations.into();
        let bytes = program.bindings.iter().map(|b| b.bytes).sum();
        let count = self.count_of_parts(program, bytes, operations);
        if count == 1 {
            dispatches.0.push(self.resolved(program, Vec::new(), bytes, operations, later)?);
            return Ok(());
        }
        let (bytes, operations) = (bytes.div_ceil(count as u64), operations.part(count as u64));
        each_part(program, count, &mut |part| {
            dispatches.0.push(self.resolved(part, Vec::new(), bytes, operations, later)?);
            Ok(())
        })
    }

    /// Whether the shaders of `dispatches` are compiled, with the driver's optimizations.
    pub fn are_compiled(&self, dispatches: &Dispatches) -> bool {
        dispatches.0.iter().all(|d| d.pipeline.outcome(Effort::Optimized) == Some(Ok(())))
    }

    /// Enqueues gathered programs.
    pub fn enqueue_gathered(&self, dispatches: Dispatches) -> Result<()> {
        dispatches.0.into_iter().try_for_each(|d| self.hand_in(d))
    }

    /// Hands a dispatch to the recorder.
    fn hand_in(&self, dispatch: Waiting<Recorder>) -> Result<()> {
        capture::note(&dispatch);
        self.settled(self.recorder.dispatch(dispatch))
    }

    /// Enqueues a captured dispatch again, with its bindings at `addresses`.
    pub fn enqueue_captured(
        &self,
        captured: &Captured,
        addresses: impl Iterator<Item = u64>,
    ) -> Result<()> {
        self.check()?;
        self.submitter.throttle();
        self.await_room();
        let mut waiting = captured.waiting(addresses);
        let own = usize::from(!waiting.dispatch.table.is_empty());
        self.await_reads(|| waiting.written())?;
        waiting.dispatch.bound =
            self.bind_all(&waiting.bindings[own..], &mut waiting.dispatch.params[own..])?;
        self.settled(self.recorder.dispatch(waiting))
    }

    /// Whether a dispatch of `work` would be cut into parts.
    pub fn is_cut(&self, work: u64) -> bool {
        parts::is_cut(&self.profile, work, self.completion.slowness())
    }

    /// Enqueues `first`, or `second`, which computes the same, if the driver refuses a shader of
    /// `first`.
    pub fn enqueue_either(&self, first: Dispatches, second: Dispatches) -> Result<()> {
        let outcomes = first.0.iter().map(|d| (d, d.pipeline.outcome(Effort::Optimized)));
        let known: Option<Vec<_>> = outcomes.map(|(d, outcome)| Some((d, outcome?))).collect();
        let Some(known) = known else {
            capture::refuse("the driver may refuse a shader");
            self.recorder.dispatch_either(first.0, second.0);
            return Ok(());
        };
        match known.into_iter().find_map(|(d, outcome)| Some((d, outcome.err()?))) {
            None => self.enqueue_gathered(first),
            Some((refused, e)) => {
                refused.pipeline.replaced(&e);
                self.enqueue_gathered(second)
            }
        }
    }

    /// Enqueues a program that does `flops` operations on floats. If the driver refuses its shader,
    /// enqueues `reserve`, which computes the same, if there is one.
    pub fn enqueue_or(
        &self,
        program: &Program<'_>,
        reserve: Option<&Program<'_>>,
        flops: u64,
    ) -> Result<()> {
        let Some(reserve) = reserve else { return self.enqueue_counted(program, flops) };
        let mut first = Dispatches::default();
        self.gather(&mut first, program, flops, false)?;
        if self.are_compiled(&first) {
            return self.enqueue_gathered(first);
        }
        let mut second = Dispatches::default();
        self.gather(&mut second, reserve, flops, true)?;
        self.enqueue_either(first, second)
    }

    /// How often a dispatch of `groups` workgroups may repeat a step that touches `bytes` and does
    /// `flops` operations without taking too long; the kernel has `wanted` steps. This is for
    /// kernels that take one step after the other: cutting their dispatches by workgroups does not
    /// help.
    pub fn repetitions(&self, groups: usize, bytes: u64, flops: u64, wanted: usize) -> usize {
        let slowness = self.completion.slowness();
        let possible = parts::repetitions(&self.profile, groups, bytes, flops, slowness);
        if possible < wanted {
            capture::refuse("the length of a dispatch depends on the GPU's speed");
        } else if possible < usize::MAX {
            // On a GPU that turns out to be slower, the steps may take more dispatches.
            let step = parts::work_of_step(groups, bytes, flops);
            capture::note_work(step.saturating_mul(wanted as u64));
        }
        possible
    }

    /// The number of parts into which a program is cut; more than one if it would take too long.
    fn count_of_parts(&self, program: &Program<'_>, bytes: u64, operations: Operations) -> usize {
        let work = pace::of_dispatch(bytes, operations.all());
        parts::count(&self.profile, program.grid, work, self.completion.slowness())
    }

    /// The dispatch of a program, after a check of its bindings. `bytes` includes its table.
    fn resolved(
        &self,
        program: &Program<'_>,
        table: Vec<u32>,
        bytes: u64,
        operations: Operations,
        later: bool,
    ) -> Result<Waiting<Recorder>> {
        self.check()?;
        self.submitter.throttle();
        self.await_room();
        let pipeline =
            if later { self.pipelines.later(program) } else { self.pipelines.get(program) }?;
        let mut block: SmallVec<[u32; 32]> = SmallVec::new();
        let table_bytes = size_of_val(&*table) as u64;
        if table_bytes > self.profile.capabilities.max_binding {
            return Err(Error::ResourceExhausted(format!(
                "a table of {table_bytes} bytes exceeds this adapter's bindings"
            )));
        }
        if table_bytes > 0 {
            // The table's offset in elements.
            block.push(0);
        }
        let first = block.len();
        block.resize(first + program.bindings.len(), 0);
        let bound = self.bind_all(&program.bindings, &mut block[first..])?;
        block.extend_from_slice(&program.params.scalars);
        if !program.params.vec4s.is_empty() {
            block.resize(block.len().next_multiple_of(4), 0);
            block.extend_from_slice(&program.params.vec4s);
        }
        let buffers = bound.len() as u32 + u32::from(table_bytes > 0);
        if (block.len() * 4) as u32 != pipeline.params_size || buffers != pipeline.storage_buffers {
            return Err(Error::Internal(format!(
                "program {:?}: {} parameter bytes and {buffers} bindings, its shader declares {} \
                 and {}",
                program.key,
                block.len() * 4,
                pipeline.params_size,
                pipeline.storage_buffers
            )));
        }
        if program.grid.0.iter().any(|groups| *groups > self.max_groups) {
            return Err(Error::ResourceExhausted(format!(
                "program {:?}: a grid of {:?} workgroups exceeds this adapter's {}",
                program.key, program.grid.0, self.max_groups
            )));
        }
        let asked = self.tracer.is_active().then(|| Box::new(Asked::now(operations.flops)));
        let work = pace::of_dispatch(bytes, operations.all());
        // Bindings are counted as in the shader.
        let table_binding = (table_bytes > 0).then_some(Binding { address: 0, bytes: 0, unit: 4 });
        let bindings: SmallVec<[Binding; 8]> =
            table_binding.into_iter().chain(program.bindings.iter().copied()).collect();
        if cfg!(debug_assertions) {
            pipeline.check_units(&bindings.iter().map(|b| b.unit).collect::<Vec<_>>())?;
        }
        let dispatch =
            Dispatch { table, bound, params: block, grid: program.grid, bytes, work, asked };
        let waiting = Waiting { pipeline, dispatch, bindings };
        self.await_reads(|| waiting.written())?;
        Ok(waiting)
    }

    /// Resolves bindings. Their remaining offsets in elements go to `offsets`.
    fn bind_all(&self, bindings: &[Binding], offsets: &mut [u32]) -> Result<SmallVec<[Bound; 8]>> {
        let empty = bindings.iter().any(|binding| binding.bytes == 0);
        let spare = if empty { Some(self.memory.spare()?) } else { None };
        let blocks = self.memory.blocks();
        let mut bound = SmallVec::new();
        for (binding, offset) in bindings.iter().zip(offsets) {
            let (resolved, rest) = match &spare {
                // An empty binding is neither read nor written; any memory will do.
                Some(spare) if binding.bytes == 0 => ((spare.clone(), 0, spare.bytes), 0),
                _ => self.bind(&blocks, binding)?,
            };
            *offset = rest;
            bound.push(resolved);
        }
        Ok(bound)
    }

    /// Resolves a binding to an aligned range of a block and the remaining offset in elements.
    fn bind(&self, blocks: &Blocks<'_>, binding: &Binding) -> Result<(Bound, u32)> {
        let Binding { address, bytes, unit } = *binding;
        let alignment = u64::from(self.profile.capabilities.storage_alignment);
        let block = blocks.resolve(address, bytes)?;
        let offset = (address - block.address) & !(alignment - 1);
        let rest = address - block.address - offset;
        // Whole vec4s, so that a packed or vectorized tail stays inside the binding; blocks are
        // multiples of 256 bytes.
        let size = (rest + bytes).next_multiple_of(16).min(block.bytes - offset);
        if size > self.profile.capabilities.max_binding {
            return Err(Error::ResourceExhausted(format!(
                "a tensor of {bytes} bytes exceeds this adapter's largest storage binding of {} \
                 bytes",
                self.profile.capabilities.max_binding
            )));
        }
        if !rest.is_multiple_of(u64::from(unit)) {
            return Err(Error::Internal(format!(
                "address {address:#x} is not a multiple of the element size {unit}"
            )));
        }
        Ok(((block.clone(), offset, size), (rest / u64::from(unit)) as u32))
    }
}

/// Calls `f` with each of `count` parts of a program.
fn each_part(
    program: &Program<'_>,
    count: usize,
    f: &mut dyn FnMut(&Program<'_>) -> Result<()>,
) -> Result<()> {
    let shader = || (program.shader)().in_parts();
    parts::ranges(program.grid, count)
        .try_for_each(|range| f(&parts::part(program, &shader, range)))
}
