//! Submissions on their way to the queue.
//!
//! wgpu encodes a batch's commands when it is submitted, which takes the host as long as recording them, and the driver takes its
//! time too. A thread of its own does that, so that who records goes on. Who waits for a batch does it himself: that spares
//! him the time until a thread wakes up.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use crossbeam_channel::{Receiver, Sender};
use parking_lot::Mutex;

use super::completion::{AfterWork, Completion, Serial, Submission};
use super::failures::Failures;
use crate::ffi::guard::caught;

/// Batches that may wait. Beyond that the recording thread submits, so that it cannot run away from the thread.
const MAX_WAITING: usize = 8;

/// One submission.
pub(crate) struct Recorded {
    pub serial: Serial,
    /// None when there is no GPU work.
    pub encoder: Option<wgpu::CommandEncoder>,
    /// What the parameter buffer holds during the submission.
    pub params: Option<(wgpu::Buffer, Vec<u8>)>,
    /// What follows the GPU work.
    pub after: Vec<AfterWork>,
}

pub(crate) struct Submitter {
    queue: wgpu::Queue,
    completion: Arc<Completion>,
    failures: Arc<Failures>,
    waiting: Mutex<VecDeque<Recorded>>,
    /// Held from taking a batch until it is submitted, which keeps the order.
    submitting: Mutex<()>,
    wake: Sender<()>,
}

impl Submitter {
    /// Starts the thread, which ends with the value.
    pub fn start(queue: wgpu::Queue, completion: Arc<Completion>, failures: Arc<Failures>) -> Arc<Self> {
        // One token suffices: the thread takes it before it looks for batches.
        let (wake, woken) = crossbeam_channel::bounded(1);
        let submitter =
            Arc::new(Self { queue, completion, failures, waiting: Mutex::default(), submitting: Mutex::new(()), wake });
        let weak = Arc::downgrade(&submitter);
        // Without a thread, batches wait for somebody who waits for them, or until there are too many.
        let _ = std::thread::Builder::new().name("wgpu-submit".into()).spawn(move || run(&woken, &weak));
        submitter
    }

    /// Queues a batch; serials must arrive in order. [`Self::wake`] or [`Self::submit`] is to follow.
    pub fn push(&self, recorded: Recorded) {
        let mut waiting = self.waiting.lock();
        waiting.push_back(recorded);
        let full = waiting.len() > MAX_WAITING;
        drop(waiting);
        if full {
            self.submit();
        }
    }

    /// Has the thread submit what waits.
    pub fn wake(&self) {
        let _ = self.wake.try_send(());
    }

    /// Submits what waits. On return everything that was queued before the call is submitted.
    pub fn submit(&self) {
        let _order = self.submitting.lock();
        loop {
            let Some(Recorded { serial, encoder, params, after }) = self.waiting.lock().pop_front() else { return };
            // A batch that is dropped is an error of all that follows, not a serial that nobody reaches.
            let index = caught("a submission", || {
                if let Some((buffer, bytes)) = params {
                    // It takes effect before the whole submission, and each block of parameters has a place of its own in it.
                    self.queue.write_buffer(&buffer, 0, &bytes);
                }
                Ok(encoder.map(|encoder| self.queue.submit([encoder.finish()])))
            });
            let index = index.unwrap_or_else(|e| {
                self.failures.lose(e);
                None
            });
            self.completion.push(Submission { serial, index, after });
        }
    }
}

fn run(woken: &Receiver<()>, submitter: &Weak<Submitter>) {
    while woken.recv().is_ok() {
        let Some(submitter) = submitter.upgrade() else { return };
        submitter.submit();
    }
}
