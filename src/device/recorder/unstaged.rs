//! The recorder's part in copies without staging buffers.

use std::ops::Range;
use std::sync::Arc;

use super::Recorder;
use crate::device::completion::{AfterWork, Serial};
use crate::device::gpu::{ReadFrom, Readback, Sink};
use crate::device::memory::Block;

impl Recorder {
    /// Clears a new block. Hands the recorded work to the submitter, and returns its serial.
    pub fn clear(&mut self, block: &Arc<Block>) -> Serial {
        self.encoder().clear_buffer(block.buffer(), 0, None);
        self.note_use(block, &(0..block.bytes));
        self.hand_over()
    }

    /// Notes that the open batch uses a part of a block.
    pub(super) fn note_use(&mut self, block: &Arc<Block>, range: &Range<u64>) {
        if !block.is_host_visible() {
            return;
        }
        block.note_use(range, self.submitted + 1);
        if self.visible.iter().all(|other| other.id != block.id) {
            self.visible.push(block.clone());
        }
    }

    /// Ends the batch with transitions of the host-visible blocks that it uses. After them the host
    /// sees the GPU's writes, and no write of the GPU comes after a later one of the host.
    pub(super) fn show_to_host(&mut self) {
        if self.visible.is_empty() {
            return;
        }
        let blocks = std::mem::take(&mut self.visible);
        let transitions = blocks.iter().map(|block| wgpu::BufferTransition {
            buffer: block.buffer(),
            state: wgpu::BufferUses::MAP_READ,
        });
        self.encoder().transition_resources(transitions, std::iter::empty());
    }

    /// Whether the host may write to a part of a block: all recorded work that uses it is done.
    pub fn is_unused(&self, block: &Block, range: &Range<u64>) -> bool {
        block.last_use(range).is_some_and(|serial| serial <= self.completion.done())
    }

    /// Counts a copy by the host to the device.
    pub const fn count_unstaged_upload(&mut self, bytes: u64) {
        self.statistics.uploads += 1;
        self.statistics.uploaded += bytes;
        self.statistics.unstaged += 1;
    }

    /// Has the completion thread pass a part of a block to `sink` after everything recorded so far.
    /// Hands the recorded work to the submitter, and returns its serial.
    pub fn read_unstaged(&mut self, block: &Arc<Block>, range: Range<u64>, sink: Sink) -> Serial {
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
