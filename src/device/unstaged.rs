//! Copies between the host and memory that host and GPU share, without staging buffers.
//!
//! The host writes to memory that no recorded or running work uses; other copies are staged as
//! usual. It reads on the completion thread, behind the work that the read was enqueued after. Work
//! that is enqueued later and writes to the same memory waits until the read is over.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::completion::{Serial, on_any_completion_thread};
use super::gpu::Sink;
use super::memory::Block;
use super::trace::HostWork;
use super::{Device, process};
use crate::error::Result;
use crate::sys::host_visible;

/// The feature of wgpu that it needs: buffers that the host maps, and that kernels use.
pub(super) const FEATURE: wgpu::Features = wgpu::Features::MAPPABLE_PRIMARY_BUFFERS;

/// Whether an adapter shares the processor's memory. Only on Vulkan and Metal do host and kernels
/// use one buffer.
pub(super) fn shares_memory(adapter: &wgpu::Adapter) -> bool {
    use wgpu::{Backend, DeviceType};
    let info = adapter.get_info();
    matches!(info.device_type, DeviceType::IntegratedGpu | DeviceType::Cpu)
        && matches!(info.backend, Backend::Vulkan | Backend::Metal)
        && adapter.features().contains(FEATURE)
}

/// The reads of device memory that are under way.
#[derive(Default)]
pub(super) struct UnstagedReads {
    reads: Mutex<Vec<(Range<u64>, Serial)>>,
    /// Whether there is one. Changed only with the lock held.
    any: AtomicBool,
}

impl UnstagedReads {
    fn add(&self, addresses: Range<u64>, serial: Serial, done: Serial) {
        let mut reads = self.reads.lock();
        reads.retain(|(_, serial)| *serial > done);
        reads.push((addresses, serial));
        self.any.store(true, Ordering::Release);
    }

    /// The last submission behind which a read of some of the `written` addresses is still under
    /// way.
    fn behind(&self, written: &[Range<u64>], done: Serial) -> Option<Serial> {
        let mut reads = self.reads.lock();
        reads.retain(|(_, serial)| *serial > done);
        self.any.store(!reads.is_empty(), Ordering::Release);
        let meets = |read: &Range<u64>| {
            written.iter().any(|range| read.start < range.end && range.start < read.end)
        };
        reads.iter().filter(|(read, _)| meets(read)).map(|(_, serial)| *serial).max()
    }
}

impl Device {
    /// Makes a new block ready for unstaged copies: wgpu clears memory at its first use, and would
    /// clear what the host has written. Waits for the device, so that the host can write at once.
    /// TensorFlow's allocator is locked meanwhile. A host callback that frees a tensor would wait
    /// for the allocator, and this call for the callback. We know of none in TensorFlow.
    pub(super) fn prepare_unstaged(&self, address: u64) {
        if !self.profile.unstaged {
            return;
        }
        let Ok(block) = self.memory.resolve(address, 1) else { return };
        if block.is_host_visible() {
            let serial = self.recorder.lock().clear(&block);
            self.submitter.submit();
            // A forked child has no thread that would end the wait.
            if !on_any_completion_thread() && !process::is_forked() {
                // If the device fails, the next call that returns a status reports it.
                let _ = self.completion.wait(serial);
            }
        }
    }

    /// Copies bytes of the host to a block if nothing uses that part of it at the moment. Returns
    /// whether it did.
    pub(super) fn upload_unstaged(&self, block: &Block, offset: u64, bytes: &[u8]) -> bool {
        let range = offset..offset + bytes.len() as u64;
        if !block.is_host_visible() || !self.recorder.lock().is_unused(block, &range) {
            return false;
        }
        let _span = self.tracer.span(|| HostWork::Stage(bytes.len() as u64));
        // Work with these bytes is enqueued after this call.
        let is_written = host_visible::write(&self.gpu.device, block.buffer(), offset, bytes);
        if is_written {
            self.recorder.lock().count_unstaged_upload(bytes.len() as u64);
        }
        is_written
    }

    /// Passes `len` bytes of a block to `sink`, once everything enqueued so far is done.
    pub(super) fn download_unstaged(
        &self,
        block: &Arc<Block>,
        offset: u64,
        len: u64,
        sink: Sink,
    ) -> Result<()> {
        self.submitter.throttle();
        let addresses = block.address + offset..block.address + offset + len;
        let mut recorder = self.recorder.lock_to_read(&addresses)?;
        let serial = recorder.read_unstaged(block, offset..offset + len, sink);
        self.unstaged_reads.add(addresses, serial, self.completion.done());
        drop(recorder);
        self.submitter.submit();
        Ok(())
    }

    /// Waits until no read of memory that new work writes to is under way. An error on this
    /// device's own completion thread, which does the reads.
    pub(super) fn await_reads<I: Iterator<Item = Range<u64>>>(
        &self,
        written: impl FnOnce() -> I,
    ) -> Result<()> {
        if !self.unstaged_reads.any.load(Ordering::Acquire) {
            return Ok(());
        }
        let written: SmallVec<[Range<u64>; 8]> = written().collect();
        let behind = self.unstaged_reads.behind(&written, self.completion.done());
        behind.map_or(Ok(()), |serial| self.completion.wait(serial))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_waits_for_the_last_read_of_its_addresses_that_is_under_way() {
        let reads = UnstagedReads::default();
        assert!(!reads.any.load(Ordering::Acquire));
        reads.add(100..200, 3, 0);
        reads.add(150..160, 4, 0);
        reads.add(300..400, 5, 0);
        assert_eq!(reads.behind(&[0..100, 200..300], 0), None);
        assert_eq!(reads.behind(&[0..10, 199..201], 0), Some(3));
        let behind = |written: Range<u64>, done| reads.behind(&[written], done);
        assert_eq!(behind(155..156, 0), Some(4));
        assert_eq!(behind(155..156, 3), Some(4));
        assert_eq!(behind(155..156, 4), None, "it is over");
        assert!(reads.any.load(Ordering::Acquire));
        assert_eq!(behind(350..351, 5), None);
        assert!(!reads.any.load(Ordering::Acquire));
    }
}
