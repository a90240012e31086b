//! The queue of a wgpu device, and the buffers that the host reads.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;
use parking_lot::Mutex;

use super::checked::checked;
use super::failures::Failures;
use super::memory::Block;
use super::process::{self, Inside};
use super::queue::Queue;
use super::trace::{HostWork, Submitted, Tracer};
use crate::error::{Error, Result};
use crate::sys::guard::panic_message;
use crate::sys::host_visible;

/// Receives the bytes of a read-back, or the reason why there are none.
pub(crate) type Sink = Box<dyn FnOnce(Result<&[u8]>) + Send>;

/// A copy to host memory on its way.
pub(crate) struct Readback {
    pub from: ReadFrom,
    /// The requested bytes within the buffer.
    pub range: Range<usize>,
    pub sink: Sink,
}

/// The buffer that the host reads.
pub(crate) enum ReadFrom {
    /// A buffer for the host, into which the GPU copied.
    Staging(wgpu::Buffer),
    /// The tensors' own block. The sink must not use wgpu.
    Tensors(Arc<Block>),
}

/// Recorded work, ready for the queue.
pub(crate) struct Batch {
    pub encoder: wgpu::CommandEncoder,
    /// The buffers of parameters, with their contents during the submission.
    pub params: [Option<(wgpu::Buffer, Vec<u8>)>; 2],
    /// The place for the time of submission, while the device is traced.
    pub submitted: Option<Submitted>,
}

/// A device with its queue.
pub(crate) struct Gpu {
    pub device: wgpu::Device,
    pub queue: wgpu::Queue,
    failures: Arc<Failures>,
    tracer: Arc<Tracer>,
    idle: Mutex<Vec<wgpu::Buffer>>,
    start: Instant,
    /// Held while the fields above are dropped.
    leaving: Option<Inside>,
}

/// The last handle closes the driver, and it may be dropped by a thread that is never joined. So
/// the end of the process waits for the close: otherwise Mesa's threads wait for each other for
/// ever. If the process is ending already, the driver stays open.
impl Drop for Gpu {
    fn drop(&mut self) {
        match process::enter() {
            Ok(inside) => self.leaving = Some(inside),
            Err(_) => std::mem::forget((self.device.clone(), self.queue.clone())),
        }
    }
}

/// The bytes of idle read-back buffers that are kept.
const MAX_IDLE_BYTES: u64 = 128 << 20;
/// The number of idle read-back buffers that are kept.
const MAX_IDLE: usize = 16;
/// The number of times that a wait without a limit may time out all the same.
const MAX_TIMEOUTS: u32 = 10_000;
/// How long it may take to map a buffer whose work is done.
const MAP_PATIENCE: Duration = Duration::from_secs(60);
/// The size of the smallest read-back buffer.
const SMALLEST: u64 = 4096;

impl Gpu {
    pub fn new(
        device: wgpu::Device,
        queue: wgpu::Queue,
        failures: Arc<Failures>,
        tracer: Arc<Tracer>,
    ) -> Self {
        Self {
            device,
            queue,
            failures,
            tracer,
            idle: Mutex::default(),
            start: Instant::now(),
            leaving: None,
        }
    }

    /// An idle or new buffer of at least `bytes` for the host to read.
    pub fn readback_buffer(&self, bytes: u64) -> Result<wgpu::Buffer> {
        let size = size_class(bytes);
        let mut idle = self.idle.lock();
        if let Some(i) = idle.iter().position(|b| b.size() == size) {
            return Ok(idle.remove(i));
        }
        drop(idle);
        checked(&self.device, &format!("cannot read back {bytes} bytes"), || {
            self.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("read-back"),
                size,
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        })
    }

    /// Drops the idle buffers.
    pub fn release_idle(&self) {
        self.idle.lock().clear();
    }

    /// Keeps a buffer. The buffers that have been idle longest make room for it.
    fn recycle(&self, buffer: wgpu::Buffer) {
        let mut idle = self.idle.lock();
        idle.push(buffer);
        let surplus = surplus(idle.iter().map(wgpu::Buffer::size));
        idle.drain(..surplus);
    }

    /// Polls the device. wgpu panics there when the driver fails.
    pub fn poll(&self, how: &wgpu::PollType) -> Result<()> {
        let failed = |why: &str| {
            Err(Error::Unavailable(format!("the GPU was lost: it stopped answering ({why})")))
        };
        for _ in 0..MAX_TIMEOUTS {
            match panic_message(|| self.device.poll(how.clone())) {
                Ok(Ok(_)) => return Ok(()),
                // No timeout was given, but drivers have limits of their own.
                Ok(Err(wgpu::PollError::Timeout)) => std::thread::sleep(Duration::from_millis(1)),
                Ok(Err(wgpu::PollError::WrongSubmissionIndex(..))) => {
                    return failed("it did not take what was submitted");
                }
                Err(panic) => return failed(&panic),
            }
        }
        failed("its waits time out")
    }

    /// Makes the device report whether it was destroyed. It does so when it is polled and has
    /// nothing to do. That report is a better reason for a failure than wgpu's own error. The poll
    /// of another thread may have seen the loss already and be about to report it; this call waits
    /// for that.
    pub fn ask_for_loss(&self, patience: Duration) {
        let end = Instant::now() + patience;
        loop {
            let all = wgpu::PollType::Wait { submission_index: None, timeout: None };
            let polled = self.poll(&all);
            if polled.is_err() || self.failures.lost().is_some() || Instant::now() >= end {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn read_unstaged(&self, block: &Block, range: Range<usize>, sink: Sink) {
        let mut sink = Some(sink);
        let bytes = range.start as u64..range.end as u64;
        let mut pass_on = |bytes: Result<&[u8]>| {
            if let Some(sink) = sink.take() {
                sink(bytes);
            }
        };
        if host_visible::read(&self.device, block.buffer(), bytes, |bytes| pass_on(Ok(bytes)))
            .is_none()
        {
            let gone = Error::Unavailable("cannot read device memory: it is gone".into());
            pass_on(Err(self.failures.lost().unwrap_or(gone)));
        }
    }

    fn map(&self, buffer: &wgpu::Buffer) -> Result<wgpu::BufferView> {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        checked(&self.device, "cannot map a read-back", || {
            buffer.map_async(wgpu::MapMode::Read, .., move |result| {
                let _ = sender.send(result);
            });
        })?;
        // The submission is done, so the first poll runs the callback, unless another thread's poll
        // is about to.
        let unmapped = |e: String| Error::Unavailable(format!("cannot read device memory: {e}"));
        let end = Instant::now() + MAP_PATIENCE;
        loop {
            self.poll(&wgpu::PollType::Poll)?;
            match receiver.recv_timeout(Duration::from_millis(1)) {
                Ok(mapped) => break mapped.map_err(|e| unmapped(e.to_string()))?,
                Err(RecvTimeoutError::Timeout) if Instant::now() < end => {}
                Err(e) => return Err(unmapped(e.to_string())),
            }
        }
        buffer.get_mapped_range(..).map_err(|e| unmapped(e.to_string()))
    }
}

impl Queue for Gpu {
    type Batch = Batch;
    /// The driver is in use until the submission is waited for.
    type Index = (wgpu::SubmissionIndex, Inside);
    type Readback = Readback;

    fn submit(&self, batch: Batch) -> Result<Self::Index> {
        let inside = process::enter()?;
        let Batch { encoder, params, submitted } = batch;
        let _span = self.tracer.span(|| HostWork::Submit);
        if let Some(submitted) = submitted {
            submitted.store(self.tracer.now(), Ordering::Relaxed);
        }
        checked(&self.device, "a batch of GPU work could not be submitted", || {
            for (buffer, bytes) in params.into_iter().flatten() {
                // The write takes effect before the whole submission, and each block of parameters
                // has its own place in the buffer.
                self.queue.write_buffer(&buffer, 0, &bytes);
            }
            self.queue.submit([encoder.finish()])
        })
        .map(|index| (index, inside))
        // Any error here ends the device.
        .inspect_err(|_| self.ask_for_loss(Duration::from_secs(1)))
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wait(&self, (index, _inside): Self::Index) -> Result<()> {
        let _span = self.tracer.span(|| HostWork::WaitForGpu);
        self.poll(&wgpu::PollType::Wait { submission_index: Some(index), timeout: None })
    }

    fn read(&self, readback: Readback, lost: Option<Error>) {
        let Readback { from, range, sink } = readback;
        let _span = self.tracer.span(|| HostWork::ReadBack(range.len() as u64));
        let buffer = match (from, lost) {
            (_, Some(e)) => return sink(Err(e)),
            (ReadFrom::Staging(buffer), None) => buffer,
            (ReadFrom::Tensors(block), None) => return self.read_unstaged(&block, range, sink),
        };
        match self.map(&buffer) {
            Ok(view) => {
                sink(Ok(&view[range]));
                drop(view);
                buffer.unmap();
                self.recycle(buffer);
            }
            Err(e) => sink(Err(e)),
        }
    }
}

/// The size of the buffer for a read-back of `bytes`: at most an eighth larger, so that later
/// read-backs of about this length can use it.
fn size_class(bytes: u64) -> u64 {
    let step = (bytes.next_power_of_two() / 16).max(SMALLEST);
    bytes.max(1).next_multiple_of(step)
}

/// The number of idle buffers, the oldest first, that exceed the limits.
fn surplus(sizes: impl DoubleEndedIterator<Item = u64> + ExactSizeIterator) -> usize {
    let count = sizes.len();
    let mut bytes = 0;
    let kept = sizes.rev().take(MAX_IDLE).take_while(|size| {
        bytes += size;
        bytes <= MAX_IDLE_BYTES
    });
    count - kept.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_back_buffers_waste_at_most_an_eighth() {
        for bytes in [1, 4096, 4100, 65_536, 1_000_000, 16 << 20, (16 << 20) + 4] {
            let size = size_class(bytes);
            assert!(
                size >= bytes && size <= bytes + (bytes / 8).max(SMALLEST),
                "{bytes} -> {size}"
            );
            assert_eq!((size % SMALLEST, size_class(size)), (0, size), "{bytes}");
        }
    }

    #[test]
    fn idle_buffers_are_bounded_in_number_and_bytes_and_the_oldest_go() {
        assert_eq!(surplus([4096; MAX_IDLE].into_iter()), 0);
        assert_eq!(surplus([4096; MAX_IDLE + 3].into_iter()), 3);
        assert_eq!(surplus([MAX_IDLE_BYTES, 4096].into_iter()), 1);
        assert_eq!(surplus([4096, MAX_IDLE_BYTES].into_iter()), 1);
        assert_eq!(
            surplus([4096, MAX_IDLE_BYTES + 1].into_iter()),
            2,
            "one that exceeds all is not kept"
        );
    }
}
