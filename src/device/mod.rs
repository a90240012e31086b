//! The GPU runtime: adapters, memory, the recorder and its completion thread, pipelines. The only
//! module that talks to wgpu; it knows nothing of ops or of TensorFlow.

pub mod adapters;
mod barriers;
mod batch;
mod belt;
mod bind_groups;
pub mod budget;
pub mod cache;
mod capabilities;
mod capture;
mod checked;
mod compiler;
mod completion;
#[cfg(any(windows, all(test, has_examination)))]
mod crashing_backends;
mod declaration;
mod dump;
mod enqueue;
mod failures;
mod family;
mod float16;
mod gpu;
mod last_use;
mod ledger;
#[cfg(has_examination)]
mod left_out;
mod matrices;
mod matrix_units;
mod memory;
mod open;
mod pace;
pub mod paging;
mod parameters;
mod parts;
mod pending;
mod pipelines;
mod poison;
mod probe;
pub(crate) mod process;
mod profile;
mod program;
mod progress;
mod queue;
mod recorder;
mod refused;
#[cfg(test)]
#[path = "../../tests/numeric/scratch.rs"]
mod scratch;
mod slots;
mod spirv;
mod staging;
mod statistics;
mod submitter;
mod sync;
pub mod trace;
mod transfer;
pub mod tuning;
mod unstaged;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use adapters::{AdapterReport, Selection};
pub use capabilities::{Capabilities, Timestamps};
pub use capture::{Capture, Captured};
pub use completion::Serial;
pub use declaration::{Axes, KeyPart, NamedBindings, Parameter, Plane, Specialization};
pub(crate) use declaration::{declare_params, declare_program, enum_key_parts};
pub use enqueue::Dispatches;
pub use family::Family;
pub use matrices::{Cooperative, Matrices, MatrixSize, Means};
pub use matrix_units::{Finding, MatrixUnits, Policy, Verdict};
pub use memory::MemoryStats;
pub use paging::Paging;
pub use profile::{Barriers, Class, Profile, Schedule};
pub use program::{Binding, Grid, Key, Params, Program, check_extent};
pub use statistics::Statistics;
pub use transfer::Timer;

use budget::MemoryBudget;
use cache::DiskCache;
use completion::Completion;
use failures::Failures;
use gpu::Gpu;
use ledger::{LARGE, Ledger};
use memory::Memory;
use pending::PendingDispatches;
use pipelines::Pipelines;
use recorder::Recorder;
use staging::Staging;
use submitter::Submitter;
use trace::{HostWork, Origin, Tracer};
use tuning::Tuner;
use unstaged::UnstagedReads;

use crate::dtype::DType;
use crate::error::{Error, Result};

/// How long a call that wgpu refused waits to hear that the device is lost.
const LOSS_PATIENCE: Duration = Duration::from_millis(10);

/// One GPU (or software adapter) with its memory and its in-order queue. All methods may be called
/// from any thread.
pub struct Device {
    number: u32,
    adapter: wgpu::Adapter,
    /// The number of devices that share its memory.
    sharers: u32,
    info: wgpu::AdapterInfo,
    profile: Profile,
    memory: Memory,
    /// Present if it pages.
    paging: Option<Arc<paging::Link>>,
    pipelines: Pipelines,
    recorder: PendingDispatches<Recorder>,
    completion: Arc<Completion<Gpu>>,
    submitter: Arc<Submitter<Gpu>>,
    failures: Arc<Failures>,
    staging: Staging,
    unstaged_reads: UnstagedReads,
    matrix_units: Arc<MatrixUnits>,
    tuner: Option<Arc<Tuner>>,
    tracer: Arc<Tracer>,
    ledger: Ledger,
    gpu: Arc<Gpu>,
    /// The largest number of workgroups in one dimension.
    max_groups: u32,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("name", &self.info.name).finish_non_exhaustive()
    }
}

impl Drop for Device {
    /// A lost device is not closed. wgpu's code for closing a device relies on calls that have
    /// failed: it destroys a semaphore twice, and asserts that everything else went well.
    fn drop(&mut self) {
        if self.failures.lost().is_some() {
            std::mem::forget(self.gpu.clone());
        }
    }
}

impl Device {
    /// A number that no other device of this process has had.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// Name, vendor, driver and backend.
    pub const fn info(&self) -> &wgpu::AdapterInfo {
        &self.info
    }

    /// The file that compiled pipelines are kept in, if there is one. The driver decides whether it
    /// keeps any.
    pub fn pipeline_cache(&self) -> Option<&Path> {
        self.pipelines.cache().map(DiskCache::path)
    }

    /// The properties that kernels may ask about the adapter.
    pub const fn profile(&self) -> Profile {
        self.profile
    }

    /// The adapter's capabilities.
    pub const fn capabilities(&self) -> &Capabilities {
        &self.profile.capabilities
    }

    /// Allocates uninitialized device memory and returns its address, a multiple of 65,536. On a
    /// lost device it may succeed and return memory whose every use returns the loss: TensorFlow
    /// takes any failure here for exhausted memory and says so.
    pub fn allocate(&self, bytes: u64) -> Result<u64> {
        let address = match self.memory.allocate(bytes) {
            Err(_) if self.memory.is_possible(bytes) && self.reclaim() => {
                self.memory.allocate(bytes)
            }
            allocated => allocated,
        };
        let address = self.settled(address)?;
        self.prepare_unstaged(address);
        self.trace_memory();
        self.refresh(address, bytes);
        Ok(address)
    }

    /// Returns unused memory to the driver: memory that was freed while work on its way used it,
    /// memory that bind groups keep, and buffers that are kept for later copies. Waits for the
    /// device, unless this thread must not wait. Returns whether it waited and polled without an
    /// error.
    fn reclaim(&self) -> bool {
        self.recorder.lock().sweep();
        self.staging.release_idle();
        self.gpu.release_idle();
        let is_done =
            !completion::on_any_completion_thread() && self.completion.wait(self.flush()).is_ok();
        // wgpu drops the buffers of finished submissions when it is polled.
        is_done && self.gpu.poll(&wgpu::PollType::Poll).is_ok()
    }

    /// Frees memory at an address that [`Device::allocate`] returned. Enqueued work may still use
    /// it.
    pub fn deallocate(&self, address: u64) -> Result<()> {
        let freed = self.memory.deallocate(address)?;
        self.trace_memory();
        self.ledger.freed(freed.address, freed.bytes);
        if let Some(block) = &freed.block {
            self.recorder.lock().forget(block);
        }
        Ok(())
    }

    /// Waits while too much device memory is on its way back to the driver because tensors took
    /// each other's places. Never on a completion thread, which others wait for.
    fn await_room(&self) {
        let Some(paging) = &self.paging else { return };
        let serial = paging.awaited();
        if serial <= self.completion.done() || completion::on_any_completion_thread() {
            return;
        }
        let mut recorder = self.recorder.lock();
        recorder.sweep_groups();
        if recorder.submitted() < serial {
            recorder.hand_over();
        }
        drop(recorder);
        self.submitter.submit();
        // If the device fails, the next call that returns a status reports it.
        let _ = self.completion.wait(serial);
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

    /// Notes that `bytes` bytes of the host go to `address`, for [`Device::large_tensors`].
    fn note_uploaded(&self, address: u64, bytes: u64) {
        if bytes >= LARGE {
            self.ledger.uploaded(address, bytes);
        }
    }

    /// The largest tensors in this device's memory and the ops that made most of it, as a text for
    /// messages. Some may be free again, which TensorFlow does not report.
    pub(crate) fn large_tensors(&self) -> Option<String> {
        self.ledger.largest()
    }

    /// Allocation statistics. If the device pages, they count the tensors in device memory.
    pub fn memory_stats(&self) -> MemoryStats {
        let stats = self.memory.stats();
        match &self.paging {
            Some(paging) => {
                // Tensors that were freed since the last command count no more.
                self.recorder.lock().bytes_away();
                MemoryStats { in_use: paging.in_use(), peak: paging.peak(), ..stats }
            }
            None => stats,
        }
    }

    /// Tells the tracer how much memory is in use.
    fn trace_memory(&self) {
        let in_use = match &self.paging {
            Some(paging) => paging.in_use(),
            None => self.memory.stats().in_use,
        };
        self.tracer.memory(in_use);
    }

    /// Lets [`MemoryStats::peak`] begin anew, if the device pages.
    pub fn reset_peak(&self) {
        if let Some(paging) = &self.paging {
            self.recorder.lock().bytes_away();
            paging.reset_peak();
        }
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
        let budget = match &self.paging {
            Some(paging) => paging.limits.budget(self.memory.stats().in_use),
            None => budget,
        };
        MemoryBudget { total: budget.total.min(room), free: budget.free.min(room), ..budget }
    }

    /// Addresses of the block that holds `address`. Programs may bind any part of it.
    pub fn block(&self, address: u64) -> Result<Range<u64>> {
        capture::refuse("it depends on where the tensors are");
        let block = self.memory.resolve(address, 1)?;
        Ok(block.address..block.address + block.bytes)
    }

    /// Whether `address` belongs to this device.
    pub fn owns(&self, address: u64) -> bool {
        self.memory.contains(address)
    }

    /// Counts of the device's work so far.
    pub fn statistics(&self) -> Statistics {
        let pipelines = self.pipelines.made();
        let mut recorder = self.recorder.lock();
        Statistics {
            pipelines,
            bind_groups_held: recorder.bind_groups_held(),
            paged: recorder.bytes_away(),
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

    /// The tuner that times programs to choose among them, if the device tunes.
    pub const fn tuner(&self) -> Option<&Arc<Tuner>> {
        self.tuner.as_ref()
    }

    /// The result of a call that used wgpu. The loss of the device takes precedence over the call's
    /// own error. A failure inside wgpu is a loss, because wgpu's state is unknown after it.
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

    /// Submits the recorded work. Returns the serial that completes with it.
    pub fn flush(&self) -> Serial {
        capture::refuse("it waits for the device");
        let serial = self.recorder.lock().hand_over();
        self.submitter.submit();
        serial
    }

    /// The serial that completes when everything enqueued so far is done. It may not be submitted
    /// yet.
    pub fn serial(&self) -> Serial {
        self.recorder.lock().serial()
    }

    /// Whether everything up to `serial` is done. Submits it if that has not happened yet; never
    /// blocks on the GPU.
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

    /// Like [`Device::synchronize`], but ignores errors of the work: the next call returns them.
    pub(crate) fn wait_idle(&self) -> Result<()> {
        let serial = self.flush();
        self.completion.wait(serial)
    }

    /// Runs `f` on the completion thread once everything enqueued so far is done. `f` cannot wait
    /// for the device.
    pub fn host_callback(&self, f: impl FnOnce() + Send + 'static) {
        capture::refuse("the host waits for it");
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

    /// Whether dispatches wait for their pipelines, or some memory lacks its value.
    pub fn is_attentive(&self) -> bool {
        self.recorder.is_attentive()
    }

    /// Notes that memory begins a new life, as an output or a temporary of an op: its old contents
    /// will not be read.
    pub fn refresh(&self, address: u64, bytes: u64) {
        self.recorder.refresh(address..address.saturating_add(bytes));
    }

    /// Notes that work which should have written `bytes` at `address` failed after its call had
    /// returned. Later reads of this memory get the error, until the memory is written again. Other
    /// calls do not get it: the next copy would fail because of it, spoil its own destination, and
    /// so on for ever.
    pub fn spoil(&self, address: u64, bytes: u64, error: &Error) {
        log::error!("{error}");
        self.recorder.spoil(address..address.saturating_add(bytes), error);
    }

    /// Ends the device: every later call returns `error` with the advice to restart the process.
    pub fn lose(&self, error: Error) {
        open::lose(&self.failures, error);
    }

    /// Destroys the device below, like a driver that loses its GPU: for tests.
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
