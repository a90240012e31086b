//! The completion thread: waits for submissions in order, hands read-backs to their sinks, runs
//! host callbacks and publishes the serial up to which everything is done.
//!
//! It also counts the work that is on its way, so that a recording thread can be held up before the
//! host runs out of memory.

use std::cell::Cell;
use std::time::Duration;

use super::failures::Failures;
use super::pace::Pace;
use super::queue::Queue;
use super::sync::{
    Arc, AtomicU64, Condvar, Mutex, Ordering, Receiver, Sender, Weak, spawn, thread_local,
    unbounded,
};
use crate::error::{Error, Result};
use crate::sys::guard::caught;

/// The number of a submission. Serials grow by one; serial 0 is complete from the start.
pub type Serial = u64;

/// The work that follows the GPU work of one submission, in order.
pub(crate) enum AfterWork<R> {
    Readback(R),
    Callback(Box<dyn FnOnce() + Send>),
}

/// One submission on its way through the GPU.
pub(crate) struct Submission<Q: Queue> {
    pub serial: Serial,
    /// None when there was no GPU work.
    pub index: Option<Q::Index>,
    pub after: Vec<AfterWork<Q::Readback>>,
    /// The resources that it holds until it is done.
    pub load: Load,
    /// When it was submitted, by the queue's clock.
    pub submitted: Duration,
}

/// The resources that a submission takes of the host and of the GPU.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Load {
    /// Bytes of uploads and read-backs.
    pub staged: u64,
    /// The GPU's work, as [`super::pace`] counts it.
    pub work: u64,
    /// Whether a pipeline runs for the first time, so that the driver may compile it.
    pub is_first: bool,
}

/// The number of submissions that may be on their way. Each holds its commands and parameters, up
/// to a few MB.
const MAX_SERIALS: u64 = 64;
/// The bytes of uploads and read-backs that may be on their way.
const MAX_STAGED: u64 = 512 << 20;
/// How far the GPU may be behind the host if more than one submission is on its way. A thread that
/// waits for the GPU waits about that long at most.
const MAX_BEHIND: Duration = Duration::from_millis(400);

/// The shared state: the last complete serial, and the load that is on its way.
pub(crate) struct Completion<Q: Queue> {
    done: AtomicU64,
    /// The last serial that was handed over for submission.
    handed: AtomicU64,
    /// The staged bytes of submissions that are not done.
    staged: AtomicU64,
    /// The work of submissions that are not done.
    work: AtomicU64,
    /// The number of submissions that are not done and run a pipeline for the first time.
    first_runs: AtomicU64,
    pace: Pace,
    mutex: Mutex<()>,
    changed: Condvar,
    sender: Sender<Submission<Q>>,
    failures: Arc<Failures>,
}

thread_local! {
    /// The address of the completion whose thread this is; 0 on other threads.
    static HERE: Cell<usize> = const { Cell::new(0) };
}

/// Whether this is the completion thread of any device.
pub(crate) fn on_any_completion_thread() -> bool {
    HERE.with(Cell::get) != 0
}

impl<Q: Queue> Completion<Q> {
    /// Starts the thread, which lives as long as the process or until the device is dropped.
    pub fn start(queue: Arc<Q>, failures: Arc<Failures>) -> Arc<Self> {
        let (sender, receiver) = unbounded();
        let completion = Arc::new(Self {
            done: AtomicU64::new(0),
            handed: AtomicU64::new(0),
            staged: AtomicU64::new(0),
            work: AtomicU64::new(0),
            first_runs: AtomicU64::new(0),
            pace: Pace::default(),
            mutex: Mutex::new(()),
            changed: Condvar::new(),
            sender,
            failures,
        });
        let weak = Arc::downgrade(&completion);
        spawn("wgpu-completion", move || run(&*queue, &receiver, &weak))
            .expect("the system can start a thread");
        completion
    }

    /// Counts a submission that is on its way from now on. To be called before [`Self::push`], in
    /// order.
    pub fn expect(&self, serial: Serial, load: Load) {
        self.staged.fetch_add(load.staged, Ordering::Relaxed);
        self.work.fetch_add(load.work, Ordering::Relaxed);
        self.first_runs.fetch_add(load.is_first.into(), Ordering::Relaxed);
        self.handed.store(serial, Ordering::Release);
    }

    /// Queues a submission; serials must arrive in order.
    pub fn push(&self, submission: Submission<Q>) {
        // The thread ends only after the sender is gone.
        let _ = self.sender.send(submission);
    }

    /// The last serial whose GPU work, read-backs and callbacks are done.
    pub fn done(&self) -> Serial {
        self.done.load(Ordering::Acquire)
    }

    /// Blocks until `serial` is done. On the completion thread this is an error, because it would
    /// wait for itself for ever.
    pub fn wait(&self, serial: Serial) -> Result<()> {
        if self.done() >= serial {
            return Ok(());
        }
        self.may_wait()?;
        self.block_while(|| self.done() < serial);
        Ok(())
    }

    /// Fails on the completion thread itself.
    pub fn may_wait(&self) -> Result<()> {
        if HERE.with(Cell::get) != std::ptr::from_ref(self).addr() {
            return Ok(());
        }
        Err(Error::FailedPrecondition(
            "a host callback waits for the device that runs it, which could never end: wait in \
             another thread"
                .into(),
        ))
    }

    /// Whether the load on its way exceeds a part of the limits, so that recording threads should
    /// wait.
    pub fn is_crowded(&self, share: LimitShare) -> bool {
        let divisor = share as u64;
        let serials = self.handed.load(Ordering::Acquire).saturating_sub(self.done());
        serials > MAX_SERIALS / divisor
            || self.staged.load(Ordering::Relaxed) > MAX_STAGED / divisor
            || serials > 1
                && self.pace.expected(self.work.load(Ordering::Relaxed))
                    > MAX_BEHIND / divisor as u32
    }

    /// Whether a submission on its way runs a pipeline for the first time.
    pub fn is_first_run(&self) -> bool {
        self.first_runs.load(Ordering::Relaxed) > 0
    }

    /// How many times slower than the reference the GPU is known to be, see [`Pace::slowness`].
    pub fn slowness(&self) -> f64 {
        self.pace.slowness()
    }

    /// How long the GPU is expected to be busy with `work`.
    pub fn expected(&self, work: u64) -> Duration {
        self.pace.expected(work)
    }

    /// Blocks while [`Self::is_crowded`] by half, but only until all work that is on its way now is
    /// done. Never blocks on a completion thread, which others wait for. All work that was handed
    /// over must be on its way to the queue.
    pub fn wait_for_room(&self) {
        if !on_any_completion_thread() {
            let handed = self.handed.load(Ordering::Acquire);
            self.block_while(|| self.is_crowded(LimitShare::Half) && self.done() < handed);
        }
    }

    fn block_while(&self, is_waiting: impl Fn() -> bool) {
        let mut guard = self.mutex.lock();
        while is_waiting() {
            self.changed.wait(&mut guard);
        }
    }

    fn publish(&self, serial: Serial, load: Load) {
        let _guard = self.mutex.lock();
        self.staged.fetch_sub(load.staged, Ordering::Relaxed);
        self.work.fetch_sub(load.work, Ordering::Relaxed);
        self.first_runs.fetch_sub(load.is_first.into(), Ordering::Relaxed);
        self.done.store(serial, Ordering::Release);
        self.changed.notify_all();
    }

    /// Runs a part of the thread's work. An error or a panic ends the device, but not the thread,
    /// which others wait for.
    fn guarded(&self, label: &str, work: impl FnOnce() -> Result<()>) {
        if let Err(e) = caught(label, work) {
            self.failures.lose(e);
        }
    }
}

/// A part of the limits of [`Completion::is_crowded`].
#[derive(Debug, Clone, Copy)]
pub(crate) enum LimitShare {
    Whole = 1,
    Half = 2,
}

fn run<Q: Queue>(queue: &Q, receiver: &Receiver<Submission<Q>>, completion: &Weak<Completion<Q>>) {
    let mut last = Duration::ZERO;
    while let Ok(Submission { serial, index, after, load, submitted }) = receiver.recv() {
        let Some(completion) = completion.upgrade() else { return };
        HERE.with(|here| here.set(std::ptr::from_ref(&*completion).addr()));
        if let Some(index) = index {
            completion.guarded("a wait for the GPU", || {
                queue.wait(index)?;
                let now = queue.now();
                if !load.is_first {
                    completion.pace.learn(load.work, now.saturating_sub(last.max(submitted)));
                }
                last = now;
                Ok(())
            });
        }
        for work in after {
            completion.guarded("what follows a submission", || {
                match work {
                    AfterWork::Readback(readback) => {
                        queue.read(readback, completion.failures.lost())
                    }
                    AfterWork::Callback(f) => f(),
                }
                Ok(())
            });
        }
        completion.publish(serial, load);
    }
}
