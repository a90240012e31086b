//! The completion thread: waits for submissions in order, hands read-backs to their sinks, runs host callbacks and
//! publishes the serial up to which everything is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender};
use parking_lot::{Condvar, Mutex};

use super::failures::Failures;
use crate::error::{Error, Result};
use crate::ffi::guard::caught;

/// Number of a submission. Serials grow by one; serial 0 is complete from the start.
pub type Serial = u64;

/// Receives the bytes of a read-back, or why there are none.
pub(crate) type Sink = Box<dyn FnOnce(Result<&[u8]>) + Send>;

/// A copy to host memory under way.
pub(crate) struct Readback {
    pub buffer: wgpu::Buffer,
    /// The wanted bytes within `buffer`.
    pub range: std::ops::Range<usize>,
    pub sink: Sink,
}

/// What follows the GPU work of one submission, in order.
pub(crate) enum AfterWork {
    Readback(Readback),
    Callback(Box<dyn FnOnce() + Send>),
}

/// One submission on its way through the GPU.
pub(crate) struct Submission {
    pub serial: Serial,
    /// None when there was no GPU work.
    pub index: Option<wgpu::SubmissionIndex>,
    pub after: Vec<AfterWork>,
}

/// Shared state: what is complete, and idle read-back buffers.
pub(crate) struct Completion {
    done: AtomicU64,
    mutex: Mutex<()>,
    changed: Condvar,
    sender: Sender<Submission>,
    pub readback_pool: Mutex<Vec<wgpu::Buffer>>,
    failures: Arc<Failures>,
}

/// Read-back buffers larger than this are not kept.
const POOLED_READBACK: u64 = 64 << 20;
/// Idle read-back buffers kept.
const POOL_LEN: usize = 16;

impl Completion {
    /// Starts the thread, which lives as long as the process or until the device is dropped.
    pub fn start(device: wgpu::Device, failures: Arc<Failures>) -> Arc<Self> {
        let (sender, receiver) = crossbeam_channel::unbounded();
        let completion = Arc::new(Self {
            done: AtomicU64::new(0),
            mutex: Mutex::new(()),
            changed: Condvar::new(),
            sender,
            readback_pool: Mutex::default(),
            failures,
        });
        let weak = Arc::downgrade(&completion);
        std::thread::Builder::new()
            .name("wgpu-completion".into())
            .spawn(move || run(&device, &receiver, &weak))
            .expect("the system can start a thread");
        completion
    }

    /// Queues a submission; serials must arrive in order.
    pub fn push(&self, submission: Submission) {
        // The thread ends only after the sender is gone.
        let _ = self.sender.send(submission);
    }

    /// The last serial whose GPU work, read-backs and callbacks are done.
    pub fn done(&self) -> Serial {
        self.done.load(Ordering::Acquire)
    }

    /// Blocks until `serial` is done.
    pub fn wait(&self, serial: Serial) {
        if self.done() >= serial {
            return;
        }
        let mut guard = self.mutex.lock();
        while self.done() < serial {
            self.changed.wait(&mut guard);
        }
    }

    fn publish(&self, serial: Serial) {
        let _guard = self.mutex.lock();
        self.done.store(serial, Ordering::Release);
        self.changed.notify_all();
    }

    /// Runs a part of the thread's work. An error or a panic ends the device, not the thread, for which others wait.
    fn guarded(&self, label: &str, work: impl FnOnce() -> Result<()>) {
        if let Err(e) = caught(label, work) {
            self.failures.lose(e);
        }
    }

    fn recycle(&self, buffer: wgpu::Buffer) {
        let mut pool = self.readback_pool.lock();
        if buffer.size() <= POOLED_READBACK && pool.len() < POOL_LEN {
            pool.push(buffer);
        }
    }
}

fn run(device: &wgpu::Device, receiver: &Receiver<Submission>, completion: &std::sync::Weak<Completion>) {
    while let Ok(Submission { serial, index, after }) = receiver.recv() {
        let Some(completion) = completion.upgrade() else { return };
        if let Some(index) = index {
            let wait = wgpu::PollType::Wait { submission_index: Some(index), timeout: None };
            completion.guarded("a wait for the GPU", || {
                device.poll(wait).map_err(|e| Error::Unavailable(format!("the GPU stopped answering: {e}")))?;
                Ok(())
            });
        }
        for work in after {
            completion.guarded("what follows a submission", || {
                match work {
                    AfterWork::Readback(r) => finish_readback(device, &completion, r),
                    AfterWork::Callback(f) => f(),
                }
                Ok(())
            });
        }
        completion.publish(serial);
    }
}

fn finish_readback(device: &wgpu::Device, completion: &Completion, readback: Readback) {
    let Readback { buffer, range, sink } = readback;
    if let Some(e) = completion.failures.lost() {
        return sink(Err(e));
    }
    let (sender, receiver) = crossbeam_channel::bounded(1);
    buffer.map_async(wgpu::MapMode::Read, .., move |result| {
        let _ = sender.send(result);
    });
    // The submission is complete, so a poll runs the callback.
    let mapped = match device.poll(wgpu::PollType::Poll) {
        Ok(_) => receiver.recv().map_err(|e| e.to_string()).and_then(|r| r.map_err(|e| e.to_string())),
        Err(e) => Err(e.to_string()),
    };
    match mapped.and_then(|()| buffer.get_mapped_range(..).map_err(|e| e.to_string())) {
        Ok(view) => {
            sink(Ok(&view[range]));
            drop(view);
            buffer.unmap();
            completion.recycle(buffer);
        }
        Err(e) => sink(Err(Error::Unavailable(format!("cannot read device memory: {e}")))),
    }
}
