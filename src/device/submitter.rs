//! Submissions on their way to the queue.
//!
//! wgpu encodes a batch's commands when it is submitted, which takes the host as long as recording
//! them, and the driver takes its time too. A separate thread does that, so that the recording
//! thread goes on. A thread that waits for a batch submits it itself: that saves the time until
//! another thread wakes up.

use std::collections::VecDeque;

use super::completion::{AfterWork, Completion, LimitShare, Load, Serial, Submission};
use super::failures::Failures;
use super::queue::Queue;
use super::sync::{Arc, AtomicBool, Mutex, Ordering, Receiver, Sender, Weak, bounded, spawn};
use crate::error::Result;
use crate::sys::guard::caught;

/// The number of batches that may wait. Beyond that the recording thread submits, so that it cannot
/// run ahead of the submitting thread.
const MAX_WAITING: usize = 8;

/// One submission.
pub(crate) struct Recorded<Q: Queue> {
    pub serial: Serial,
    /// None when there is no GPU work; an error when it could not be recorded to its end.
    pub batch: Result<Option<Q::Batch>>,
    /// The work that follows the GPU work.
    pub after: Vec<AfterWork<Q::Readback>>,
    /// The resources that it holds until it is done.
    pub load: Load,
}

pub(crate) struct Submitter<Q: Queue> {
    queue: Arc<Q>,
    completion: Arc<Completion<Q>>,
    failures: Arc<Failures>,
    waiting: Mutex<VecDeque<Recorded<Q>>>,
    /// Held from taking a batch until it is submitted, which keeps the order.
    submitting: Mutex<()>,
    wake: Sender<()>,
    /// Whether there is a thread to wake.
    has_thread: AtomicBool,
}

impl<Q: Queue> Submitter<Q> {
    /// Starts the thread, which ends with the value.
    pub fn start(
        queue: Arc<Q>,
        completion: Arc<Completion<Q>>,
        failures: Arc<Failures>,
    ) -> Arc<Self> {
        // One token suffices: the thread takes it before it looks for batches.
        let (wake, woken) = bounded(1);
        let submitter = Arc::new(Self {
            queue,
            completion,
            failures,
            waiting: Mutex::default(),
            submitting: Mutex::new(()),
            wake,
            has_thread: AtomicBool::new(true),
        });
        let weak = Arc::downgrade(&submitter);
        // If there is no thread, batches wait for a thread that waits for them, or until there are
        // too many.
        if spawn("wgpu-submit", move || run(&woken, &weak)).is_err() {
            submitter.has_thread.store(false, Ordering::Relaxed);
        }
        submitter
    }

    /// Queues a batch; serials must arrive in order. The caller must call [`Self::wake`] or
    /// [`Self::submit`] afterwards.
    pub fn push(&self, recorded: Recorded<Q>) {
        self.completion.expect(recorded.serial, recorded.load);
        let mut waiting = self.waiting.lock();
        waiting.push_back(recorded);
        let full = waiting.len() > MAX_WAITING;
        drop(waiting);
        if full {
            self.submit();
        }
    }

    /// Has the thread submit the waiting batches.
    pub fn wake(&self) {
        let _ = self.wake.try_send(());
    }

    /// Submits the waiting batches. On return everything that was queued before the call is
    /// submitted.
    pub fn submit(&self) {
        let _order = self.submitting.lock();
        loop {
            let Some(Recorded { serial, batch, after, load }) = self.waiting.lock().pop_front()
            else {
                return;
            };
            // Any later work may depend on a batch that does not run as it was recorded. So this
            // ends the device, and the read-backs of this and all later batches get the error.
            let submitted = self.queue.now();
            let index = caught("a submission", || match (batch?, self.failures.lost()) {
                (Some(batch), None) => self.queue.submit(batch).map(Some),
                _ => Ok(None),
            });
            let index = index.unwrap_or_else(|e| {
                self.failures.lose(e);
                None
            });
            self.completion.push(Submission { serial, index, after, load, submitted });
        }
    }

    /// Waits while too much is on its way. A loop that reads nothing back would otherwise run ahead
    /// of the GPU until the host is out of memory. Not to be called with the recorder's lock held.
    pub fn throttle(&self) {
        if self.completion.is_crowded(LimitShare::Whole) {
            // Some drivers run a batch before they return from its submission. This thread goes on
            // as soon as there is room.
            if self.has_thread.load(Ordering::Relaxed) {
                self.wake();
            } else {
                self.submit();
            }
            self.completion.wait_for_room();
        }
    }
}

fn run<Q: Queue>(woken: &Receiver<()>, submitter: &Weak<Submitter<Q>>) {
    while woken.recv().is_ok() {
        let Some(submitter) = submitter.upgrade() else { return };
        submitter.submit();
    }
}
