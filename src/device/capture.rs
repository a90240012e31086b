//! A log of the dispatches that a thread enqueues, and dispatches that are enqueued again.
//!
//! The same kernels enqueue the same dispatches for tensors of the same shapes, but for the
//! addresses. A caller that knows the tensors can enqueue logged dispatches again
//! ([`super::Device::enqueue_captured`]) without the kernels. Work that depends on anything else
//! refuses the capture.

use std::cell::RefCell;
use std::sync::Arc;

use smallvec::SmallVec;

use super::pending::Waiting;
use super::pipelines::Planned;
use super::program::{Binding, Grid};
use super::recorder::{Dispatch, Recorder};

/// A dispatch that can be enqueued again.
pub struct Captured {
    pipeline: Arc<Planned>,
    /// The table, if there is one, and the tensors.
    bindings: SmallVec<[Binding; 8]>,
    table: Vec<u32>,
    params: SmallVec<[u32; 32]>,
    grid: Grid,
    bytes: u64,
    /// Its work, for [`super::Device::is_cut`].
    pub work: u64,
}

/// The dispatches that a thread has enqueued.
#[derive(Default)]
struct Log {
    dispatches: Vec<Captured>,
    /// The most work that is a single dispatch as long as the GPU is not too slow for it.
    work: u64,
    refused: Option<&'static str>,
}

thread_local! {
    /// The log of this thread, while it captures.
    static LOG: RefCell<Option<Log>> = const { RefCell::new(None) };
}

/// While it exists, this thread logs the dispatches that it enqueues.
#[derive(Debug)]
pub struct Capture(());

impl Capture {
    /// Begins it. A thread has one log.
    pub fn begin() -> Self {
        LOG.set(Some(Log::default()));
        Self(())
    }

    /// The dispatches since the last call.
    pub fn take(&mut self) -> Vec<Captured> {
        LOG.with_borrow_mut(|log| log.as_mut().map(|log| std::mem::take(&mut log.dispatches)))
            .unwrap_or_default()
    }

    /// Runs `f` without logging its dispatches.
    pub fn without<T>(&mut self, f: impl FnOnce() -> T) -> T {
        // A panic in `f` ends the capture.
        let log = LOG.take();
        let result = f();
        LOG.set(log);
        result
    }

    /// The most work that kernels did in one dispatch, because the GPU is fast enough for it.
    pub fn work(&self) -> u64 {
        LOG.with_borrow(|log| log.as_ref().map_or(0, |log| log.work))
    }

    /// Why the dispatches cannot stand for the kernels.
    pub fn refused(&self) -> Option<&'static str> {
        LOG.with_borrow(|log| log.as_ref()?.refused)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        LOG.set(None);
    }
}

/// Logs a dispatch, while this thread captures.
pub(super) fn note(waiting: &Waiting<Recorder>) {
    LOG.with_borrow_mut(|log| {
        if let Some(log) = log {
            log.dispatches.push(Captured::of(waiting));
        }
    });
}

/// Says that this thread's kernel does this work in one dispatch only as long as the GPU is fast
/// enough.
pub(super) fn note_work(work: u64) {
    LOG.with_borrow_mut(|log| {
        if let Some(log) = log {
            log.work = log.work.max(work);
        }
    });
}

/// Says that this thread does work that a log does not hold, and why that cannot be repeated.
pub(super) fn refuse(why: &'static str) {
    LOG.with_borrow_mut(|log| {
        if let Some(log) = log {
            log.refused.get_or_insert(why);
        }
    });
}

impl Captured {
    fn of(waiting: &Waiting<Recorder>) -> Self {
        let Dispatch { table, params, grid, bytes, work, .. } = &waiting.dispatch;
        Self {
            pipeline: waiting.pipeline.clone(),
            bindings: waiting.bindings.clone(),
            table: table.clone(),
            params: params.clone(),
            grid: *grid,
            bytes: *bytes,
            work: *work,
        }
    }

    /// The tensors that it binds.
    pub fn bindings(&self) -> &[Binding] {
        &self.bindings[usize::from(!self.table.is_empty())..]
    }

    /// The dispatch with its tensors at `addresses`, which are not resolved yet.
    pub(super) fn waiting(&self, addresses: impl Iterator<Item = u64>) -> Waiting<Recorder> {
        let mut bindings: SmallVec<[Binding; 8]> = SmallVec::from_slice(&self.bindings);
        let tensors = &mut bindings[usize::from(!self.table.is_empty())..];
        tensors.iter_mut().zip(addresses).for_each(|(tensor, address)| tensor.address = address);
        Waiting {
            pipeline: self.pipeline.clone(),
            dispatch: Dispatch {
                table: self.table.clone(),
                bound: SmallVec::new(),
                params: SmallVec::from_slice(&self.params),
                grid: self.grid,
                bytes: self.bytes,
                work: self.work,
                asked: None,
            },
            bindings,
        }
    }
}
