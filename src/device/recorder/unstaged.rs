//! The recorder's part in copies without staging buffers.

use std::ops::Range;
use std::sync::Arc;

use super::Recorder;
use crate::device::checked::checked;
use crate::device::completion::{AfterWork, Serial};
use crate::device::gpu::{ReadFrom, Readback, Sink};
use crate::device::memory::Block;
use crate::error::Result;

impl Recorder {
    /// Clears a new block.
    pub fn clear(&mut self, block: &Block) -> Result<()> {
        let gpu = self.gpu.clone();
        let encoder = self.encoder();
        checked(&gpu.device, "cannot clear device memory", || {
            encoder.clear_buffer(block.buffer(), 0, None);
        })?;
        block.note_use(&(0..block.bytes), self.submitted + 1);
        Ok(())
    }

    /// Whether the host may write to a part of a block: nothing that is recorded uses it, or all of
    /// that is done.
    pub fn is_unused(&self, block: &Block, range: &Range<u64>) -> bool {
        block.last_use(range).is_some_and(|serial| serial <= self.completion.done())
    }

    /// Counts a copy by the host to the device.
    pub const fn count_upload_unstaged(&mut self, bytes: u64) {
        self.statistics.uploads += 1;
        self.statistics.uploaded += bytes;
        self.statistics.unstaged += 1;
    }

    /// Has the completion thread pass a part of a block to `sink` after everything recorded so far.
    /// Hands the recorded work to the submitter, and returns its serial.
    pub fn read_unstaged(&mut self, block: &Arc<Block>, range: Range<u64>, sink: Sink) -> Serial {
        // The GPU's writes become visible to the host.
        let transition =
            wgpu::BufferTransition { buffer: block.buffer(), state: wgpu::BufferUses::MAP_READ };
        self.encoder().transition_resources(std::iter::once(transition), std::iter::empty());
        self.statistics.downloads += 1;
        self.statistics.downloaded += range.end - range.start;
        self.statistics.unstaged += 1;
        let from = ReadFrom::Tensors(block.clone());
        let bytes = range.start as usize..range.end as usize;
        self.after.push(AfterWork::Readback(Readback { from, range: bytes, sink }));
        let serial = self.hand_over();
        block.note_use(&range, serial);
        serial
    }
}
