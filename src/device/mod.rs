//! The GPU runtime: adapters, memory, the recorder and its completion thread, pipelines. The only
//! module that talks to wgpu; it knows nothing of ops or of TensorFlow.

pub mod adapters;
mod barriers;
mod batch;
mod belt;
mod bind_groups;
mod budget;
pub mod cache;
mod capabilities;
mod checked;
mod completion;
mod dump;
mod failures;
mod gpu;
mod ledger;
#[cfg(has_examination)]
mod left_out;
mod matrices;
mod matrix_units;
mod memory;
mod open;
mod pace;
mod parameters;
mod parts;
mod pending;
mod pipelines;
mod poison;
pub(crate) mod process;
mod profile;
mod program;
mod progress;
mod queue;
mod recorder;
#[cfg(test)]
#[path = "../../tests/numeric/scratch.rs"]
mod scratch;
mod spirv;
mod staging;
mod statistics;
mod submitter;
mod sync;
pub mod trace;
mod transfer;
pub mod tuning;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

pub use adapters::{AdapterReport, Selection};
pub use budget::MemoryBudget;
pub use capabilities::{Capabilities, Timestamps};
pub use completion::Serial;
pub use matrices::{Cooperative, Matrices, MatrixSize, Means};
pub use matrix_units::{MatrixUnits, Policy, Verdict};
pub use memory::MemoryStats;
pub use profile::{Barriers, Class, Profile, Schedule};
pub use program::{Binding, Grid, Key, Params, Program, check_extent};
pub use statistics::Statistics;
pub use transfer::Timer;

use cache::DiskCache;
use completion::Completion;
use failures::Failures;
use gpu::Gpu;
use ledger::{LARGE, Ledger};
use memory::{Blocks, Memory};
use pending::{PendingDispatches, Waiting};
use pipelines::Pipelines;
use recorder::{Bound, Dispatch, Recorder};
use staging::Staging;
use submitter::Submitter;
use trace::probe::Asked;
use trace::{HostWork, Origin, Tracer};
use tuning::Tuner;

use crate::dtype::DType;
use crate::error::{Error, Result};

/// How long a call that wgpu refused waits to hear that the device is lost.
const LOSS_PATIENCE: Duration = Duration::from_millis(10);

/// One GPU (or software adapter) with its memory and its in-order queue. All methods may be called
/// from any thread.
pub struct Device {
    adapter: wgpu::Adapter,
    /// How many devices have its memory.
    sharers: u32,
    info: wgpu::AdapterInfo,
    profile: Profile,
    memory: Memory,
    pipelines: Pipelines,
    recorder: PendingDispatches<Recorder>,
    completion: Arc<Completion<Gpu>>,
    submitter: Arc<Submitter<Gpu>>,
    failures: Arc<Failures>,
    staging: Staging,
    matrix_units: Arc<MatrixUnits>,
    tuner: Option<Arc<Tuner>>,
    tracer: Arc<Tracer>,
    ledger: Ledger,
    gpu: Arc<Gpu>,
    /// Workgroups in one dimension.
    max_groups: u32,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("name", &self.info.name).finish_non_exhaustive()
    }
}

impl Drop for Device {
    /// A lost device stays with wgpu, whose code for the end of a device relies on what failed: it
    /// destroys a semaphore twice, and asserts that everything else went well.
    fn drop(&mut self) {
        if self.failures.lost().is_some() {
            std::mem::forget(self.gpu.clone());
        }
    }
}

impl Device {
    /// Name, vendor, driver and backend.
    pub const fn info(&self) -> &wgpu::AdapterInfo {
        &self.info
    }

    /// The file that compiled pipelines are kept in, if there is one. The driver decides whether
    /// anything is.
    pub fn pipeline_cache(&self) -> Option<&Path> {
        self.pipelines.cache().map(DiskCache::path)
    }

    /// What kernels may ask about the adapter.
    pub const fn profile(&self) -> Profile {
        self.profile
    }

    /// What the adapter can do.
    pub const fn capabilities(&self) -> &Capabilities {
        &self.profile.capabilities
    }

    /// Allocates uninitialized device memory and returns its address, a multiple of 65,536. On a
    /// lost device it may succeed, with memory whose every use returns the loss: TensorFlow takes
    /// any failure here for exhausted memory and says so.
    pub fn allocate(&self, bytes: u64) -> Result<u64> {
        let address = match self.memory.allocate(bytes) {
            Err(_) if self.memory.is_possible(bytes) && self.reclaim() => {
                self.memory.allocate(bytes)
            }
            allocated => allocated,
        };
        let address = self.settled(address)?;
        self.tracer.memory(self.memory.stats().in_use);
        self.refresh(address, bytes);
        Ok(address)
    }

    /// Returns to the driver what is not in use: work on its way keeps memory that was freed since,
    /// bind groups keep some, and buffers for copies are kept for later ones. Waits for the device,
    /// unless that is impossible here. Whether it did.
    fn reclaim(&self) -> bool {
        self.recorder.lock().sweep();
        self.staging.release_idle();
        self.gpu.release_idle();
        let is_done =
            !completion::on_any_completion_thread() && self.completion.wait(self.flush()).is_ok();
        // Buffers of submissions that are done go when somebody polls.
        is_done && self.gpu.poll(&wgpu::PollType::Poll).is_ok()
    }

    /// Frees memory at an address that [`Device::allocate`] returned. Enqueued work may still use
    /// it.
    pub fn deallocate(&self, address: u64) -> Result<()> {
        let block = self.memory.deallocate(address)?;
        self.tracer.memory(self.memory.stats().in_use);
        self.ledger.freed(block.address, block.bytes);
        self.recorder.lock().forget(&block);
        Ok(())
    }

    /// Notes that an op made a tensor at `address`, for [`Device::large_tensors`].
    pub(crate) fn note_made(
        &self,
        address: u64,
        bytes: u64,
        tensor: (DType, &[usize]),
        origin: &Arc<Origin>,
    ) {
        if bytes >= LARGE {
            self.ledger.made(address, bytes, tensor, origin);
        }
    }

    /// The largest tensors that ops made in this device's memory, as a sentence for messages. Some
    /// may be free again, which TensorFlow tells nobody.
    pub(crate) fn large_tensors(&self) -> Option<String> {
        self.ledger.largest()
    }

    /// Allocation statistics.
    pub fn memory_stats(&self) -> MemoryStats {
        self.memory.stats()
    }

    /// Bytes that the device had when it was opened: more than any tensor can have.
    pub const fn total_memory(&self) -> u64 {
        self.memory.total()
    }

    /// How much memory the device has and how much of it is free.
    pub fn memory_budget(&self) -> MemoryBudget {
        let budget = budget::of(
            &self.adapter,
            &self.info,
            self.profile.capabilities.max_buffer,
            self.memory.stats().in_use,
            self.sharers,
        );
        let room = self.memory.room();
        MemoryBudget { total: budget.total.min(room), free: budget.free.min(room), ..budget }
    }

    /// Addresses of the block that holds `address`. Programs may bind any part of it.
    pub fn block(&self, address: u64) -> Result<Range<u64>> {
        let block = self.memory.resolve(address, 1)?;
        Ok(block.address..block.address + block.bytes)
    }

    /// Whether `address` belongs to this device.
    pub fn owns(&self, address: u64) -> bool {
        self.memory.contains(address)
    }

    /// What it has done so far.
    pub fn statistics(&self) -> Statistics {
        let pipelines = self.pipelines.made();
        let recorder = self.recorder.lock();
        Statistics {
            pipelines,
            bind_groups_held: recorder.bind_groups_held(),
            ..recorder.statistics
        }
    }

    /// Fails when `n` elements cannot be indexed with 32 bits by a kernel that has no windows.
    pub fn check_extent(&self, n: usize) -> Result<u32> {
        check_extent(n)
    }

    /// Whether its cooperative matrices are used.
    pub const fn matrix_units(&self) -> &Arc<MatrixUnits> {
        &self.matrix_units
    }

    /// What times programs in the place of each other, if that is asked for.
    pub const fn tuner(&self) -> Option<&Arc<Tuner>> {
        self.tuner.as_ref()
    }

    /// Whether no dispatch waits for its pipeline to be compiled, as far as can be told at once.
    pub fn is_recorded(&self) -> bool {
        self.recorder.is_clear()
    }

    /// Whether the shader of `program` is compiled, which begins with the first call. Its error is
    /// returned, and raised by nobody else.
    pub fn is_ready(&self, program: &Program<'_>) -> Result<bool> {
        match self.pipelines.get(program)?.get() {
            Some(compiled) => compiled.as_ref().map(|_| true).map_err(Clone::clone),
            None => Ok(false),
        }
    }

    /// Compiles the shader of `program`, or waits until it is. Its error is returned, and raised by
    /// nobody else.
    pub fn prepare(&self, program: &Program<'_>) -> Result<()> {
        self.pipelines.get(program)?.wait().as_ref().map(drop).map_err(Clone::clone)
    }

    /// Enqueues a dispatch after everything enqueued before.
    pub fn enqueue(&self, program: &Program<'_>) -> Result<()> {
        self.enqueue_counted(program, 0)
    }

    /// The same for a program of so many operations on floats, which profiles tell: sums, products,
    /// comparisons and calls of functions count one each, however a GPU computes them.
    pub fn enqueue_counted(&self, program: &Program<'_>, flops: u64) -> Result<()> {
        let bytes = program.bindings.iter().map(|b| b.bytes).sum();
        self.enqueue_all(program, Vec::new(), bytes, flops)
    }

    /// The same for a program that touches `bytes` of what it binds, and with a binding more, in
    /// front of the others: an array of `u32` that holds `table`. It travels with the submission,
    /// so that tables that differ from step to step cost neither memory of their own nor bind
    /// groups.
    pub fn enqueue_table(
        &self,
        program: &Program<'_>,
        table: Vec<u32>,
        bytes: u64,
        flops: u64,
    ) -> Result<()> {
        self.enqueue_all(program, table, bytes, flops)
    }

    fn enqueue_all(
        &self,
        program: &Program<'_>,
        table: Vec<u32>,
        bytes: u64,
        flops: u64,
    ) -> Result<()> {
        let work = pace::of_dispatch(size_of_val(&*table) as u64 + bytes, flops);
        let count = parts::count(&self.profile, program.grid, work, self.completion.slowness());
        if count == 1 {
            return self.enqueue_whole(program, table, bytes, flops);
        }
        let shader = || (program.shader)().in_parts();
        let share = |n: u64| n.div_ceil(count as u64);
        for range in parts::ranges(program.grid, count) {
            let part = parts::part(program, &shader, range);
            self.enqueue_whole(&part, table.clone(), share(bytes), share(flops))?;
        }
        Ok(())
    }

    fn enqueue_whole(
        &self,
        program: &Program<'_>,
        table: Vec<u32>,
        bytes: u64,
        flops: u64,
    ) -> Result<()> {
        self.check()?;
        self.submitter.throttle();
        let pipeline = self.pipelines.get(program)?;
        let mut bound: SmallVec<[Bound; 8]> = SmallVec::new();
        let mut block: SmallVec<[u32; 32]> = SmallVec::new();
        let empty = program.bindings.iter().any(|binding| binding.bytes == 0);
        let spare = if empty { Some(self.memory.spare()?) } else { None };
        let table_bytes = size_of_val(&*table) as u64;
        if table_bytes > self.profile.capabilities.max_binding {
            return Err(Error::ResourceExhausted(format!(
                "a table of {table_bytes} bytes exceeds this adapter's bindings"
            )));
        }
        if table_bytes > 0 {
            // Its offset in elements.
            block.push(0);
        }
        let blocks = self.memory.blocks();
        for binding in &program.bindings {
            let (resolved, offset) = match &spare {
                // Nothing is read or written; any memory will do.
                Some(spare) if binding.bytes == 0 => ((spare.clone(), 0, spare.bytes), 0),
                _ => self.bind(&blocks, binding)?,
            };
            block.push(offset);
            bound.push(resolved);
        }
        drop(blocks);
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
        let bytes = table_bytes + bytes;
        let asked = self.tracer.is_active().then(|| Box::new(Asked::now(flops)));
        let work = pace::of_dispatch(bytes, flops);
        let dispatch =
            Dispatch { table, bound, params: block, grid: program.grid, bytes, work, asked };
        let waiting = Waiting { pipeline, dispatch };
        if table_bytes == 0 {
            return self.settled(self.recorder.dispatch(waiting, &program.bindings));
        }
        // Bindings are counted as the shader does.
        let table = Binding { address: 0, bytes: 0, unit: 4 };
        let bindings: SmallVec<[Binding; 9]> =
            std::iter::once(table).chain(program.bindings.iter().copied()).collect();
        self.settled(self.recorder.dispatch(waiting, &bindings))
    }

    /// The result of a call that used wgpu. The loss of the device goes before whatever the call
    /// says of it; a failure inside wgpu is one, for nobody knows what it left behind.
    fn settled<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|e| {
            match &e {
                Error::Unavailable(_) => self.lose(e.clone()),
                Error::Internal(_) if self.failures.lost().is_none() => {
                    self.gpu.ask_for_loss(LOSS_PATIENCE);
                }
                _ => {}
            }
            self.failures.lost().unwrap_or(e)
        })
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

    /// Submits what is recorded. Returns the serial that completes with it.
    pub fn flush(&self) -> Serial {
        let serial = self.recorder.lock().hand_over();
        self.submitter.submit();
        serial
    }

    /// The serial that completes when everything enqueued so far is done. Not yet submitted,
    /// perhaps.
    pub fn serial(&self) -> Serial {
        self.recorder.lock().serial()
    }

    /// Whether everything up to `serial` is done. Has it submitted if nobody did yet; never blocks
    /// on the GPU.
    pub fn is_done(&self, serial: Serial) -> bool {
        if self.completion.done() >= serial {
            return true;
        }
        if let Some(mut recorder) = self.recorder.try_lock()
            && recorder.submitted() < serial
        {
            recorder.submit();
        }
        self.completion.done() >= serial
    }

    /// Blocks until everything up to `serial` is done.
    pub fn wait(&self, serial: Serial) -> Result<()> {
        if self.completion.done() < serial {
            self.completion.may_wait()?;
            let mut recorder = self.recorder.lock();
            if recorder.submitted() < serial {
                recorder.hand_over();
            }
            drop(recorder);
            self.submitter.submit();
            let _span = self.tracer.span(|| HostWork::WaitForDevice);
            self.completion.wait(serial)?;
        }
        self.check()
    }

    /// Fails on the completion thread, whose work would wait for itself.
    pub fn may_wait(&self) -> Result<()> {
        self.completion.may_wait()
    }

    /// Blocks until everything enqueued so far is done.
    pub fn synchronize(&self) -> Result<()> {
        let serial = self.flush();
        self.wait(serial)
    }

    /// Runs `f` on the completion thread once everything enqueued so far is done. It cannot wait
    /// for the device.
    pub fn host_callback(&self, f: impl FnOnce() + Send + 'static) {
        let mut recorder = self.recorder.lock();
        recorder.callback(Box::new(f));
        recorder.hand_over();
        drop(recorder);
        self.submitter.submit();
    }

    /// Makes `error` the pending error, for work that fails after its call has returned.
    pub fn raise(&self, error: Error) {
        log::error!("{error}");
        self.failures.raise(error);
    }

    /// Notes that memory begins a new life, as an output or a temporary of an op: nobody will read
    /// what was there before.
    pub fn refresh(&self, address: u64, bytes: u64) {
        self.recorder.refresh(address..address.saturating_add(bytes));
    }

    /// Notes that work failed which was to write `bytes` at `address`, though its call could not
    /// say so: who reads there gets the error, until somebody writes there. Other calls do not: the
    /// next copy would fail of it, spoil its own destination, and so on for ever.
    pub fn spoil(&self, address: u64, bytes: u64, error: &Error) {
        log::error!("{error}");
        self.recorder.spoil(address..address.saturating_add(bytes), error);
    }

    /// Ends the device: every later call returns `error` with the advice to restart the process.
    pub fn lose(&self, error: Error) {
        open::lose(&self.failures, error);
    }

    /// Destroys the device below, as a driver does that loses its GPU: for tests.
    #[doc(hidden)]
    pub fn destroy(&self) {
        self.gpu.device.destroy();
    }

    /// The pending error of the GPU or of the process, if any: a lost device stays lost, other
    /// errors are reported once.
    pub fn check(&self) -> Result<()> {
        process::check()?;
        self.failures.check()
    }
}
