//! The recorder's part in paging: it makes the buffers and records the copies that the pager wants.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{Bound, Recorder};
use crate::device::checked::checked;
use crate::device::completion::Serial;
use crate::device::memory::{Block, storage_buffer};
use crate::device::pace;
use crate::device::paging::{Access, LEAVING, Mover, Pager};
use crate::device::pending::Uses;
use crate::device::trace::Work;
use crate::error::Result;

/// The pager of a recorder, and the memory that is on its way back to the driver.
pub(crate) struct PagedMemory {
    pager: Pager<Recorder>,
    /// Submissions, and the bytes that are back after them.
    leaving: Vec<(Serial, u64)>,
}

impl PagedMemory {
    pub fn new(pager: Pager<Recorder>) -> Box<Self> {
        Box::new(Self { pager, leaving: Vec::new() })
    }
}

impl Recorder {
    /// Runs `f` with the pager; None if the device does not page.
    fn with_pager<T>(&mut self, f: impl FnOnce(&mut Pager<Self>, &mut Self) -> T) -> Option<T> {
        let mut paged = self.paged.take()?;
        let result = f(&mut paged.pager, self);
        paged.leaving.append(&mut self.leaving);
        self.paged = Some(paged);
        self.note_leaving();
        Some(result)
    }

    /// The bindings of a dispatch with frames in the place of paged tensors. The first binding is
    /// the shader's number `first`.
    pub(super) fn placed(
        &mut self,
        bound: &[Bound],
        uses: Uses,
        first: usize,
    ) -> Result<SmallVec<[Bound; 8]>> {
        let accesses: SmallVec<[Access; 8]> = bound
            .iter()
            .zip(first..)
            .filter_map(|((block, ..), binding)| {
                let (key, bytes) = (block.paged()?, block.bytes);
                Some(Access { key, bytes, writes: uses.writes(binding), replaces: false })
            })
            .collect();
        let mut placed = SmallVec::from(bound);
        if accesses.is_empty() {
            return Ok(placed);
        }
        let frames = self.with_pager(|pager, mover| pager.place(&accesses, mover));
        let mut frames = frames.transpose()?.into_iter().flatten();
        for (block, ..) in placed.iter_mut().filter(|(block, ..)| block.paged().is_some()) {
            if let Some(frame) = frames.next() {
                *block = frame;
            }
        }
        Ok(placed)
    }

    /// The block to copy `bytes` to, at `offset` of `block`.
    pub(super) fn destination(
        &mut self,
        block: &Arc<Block>,
        offset: u64,
        bytes: u64,
    ) -> Result<Arc<Block>> {
        let Some(key) = block.paged() else { return Ok(block.clone()) };
        let replaces = offset == 0 && bytes == block.bytes;
        let access = Access { key, bytes: block.bytes, writes: true, replaces };
        self.one(block, access)
    }

    /// The buffer to copy from in the place of `block`.
    pub(super) fn source(&mut self, block: &Arc<Block>) -> Result<wgpu::Buffer> {
        let Some(key) = block.paged() else { return Ok(block.buffer().clone()) };
        if let Some(host) = self.with_pager(|pager, _| pager.away(key)).flatten() {
            return Ok(host);
        }
        let access = Access { key, bytes: block.bytes, writes: false, replaces: false };
        self.one(block, access).map(|frame| frame.buffer().clone())
    }

    fn one(&mut self, block: &Arc<Block>, access: Access) -> Result<Arc<Block>> {
        let frames = self.with_pager(|pager, mover| pager.place(&[access], mover)).transpose()?;
        Ok(frames.and_then(|mut frames| frames.pop()).unwrap_or_else(|| block.clone()))
    }

    /// Gives device memory that holds no tensor back to the driver.
    pub(super) fn release_frames(&mut self) {
        self.with_pager(|pager, mover| pager.release_idle(mover));
    }

    /// Bytes of large tensors that are in host memory alone.
    pub fn bytes_away(&mut self) -> u64 {
        self.paged.as_mut().map_or(0, |paged| paged.pager.bytes_away())
    }

    /// Says which submission a thread should wait for, so that not too much memory is on its way
    /// back to the driver.
    fn note_leaving(&mut self) {
        let done = self.completion.done();
        let Some(paged) = &mut self.paged else { return };
        if paged.leaving.is_empty() {
            return;
        }
        paged.leaving.retain(|(serial, _)| *serial > done);
        let link = paged.pager.link();
        let most = link.room() / LEAVING;
        let mut left: u64 = paged.leaving.iter().map(|(_, bytes)| bytes).sum();
        let awaited = paged.leaving.iter().take_while(|(_, bytes)| {
            let is_over = left > most;
            left -= bytes;
            is_over
        });
        link.set_awaited(awaited.last().map_or(0, |(serial, _)| *serial));
    }

    /// Counts a copy of the pager.
    fn count_page(&mut self, bytes: u64) {
        self.batch.work = self.batch.work.saturating_add(pace::of_copy(bytes));
    }
}

impl Mover for Recorder {
    type Frame = Arc<Block>;
    type Host = wgpu::Buffer;

    fn frame(&mut self, number: u32, bytes: u64) -> Result<Arc<Block>> {
        let label = format!("cannot make room for a tensor of {bytes} bytes in device memory");
        let buffer = storage_buffer(&self.gpu.device, &label, bytes)?;
        Ok(Arc::new(Block::frame(number, buffer)))
    }

    fn host(&mut self, bytes: u64) -> Result<wgpu::Buffer> {
        checked(&self.gpu.device, &format!("cannot move {bytes} bytes to host memory"), || {
            self.gpu.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("paged tensor"),
                size: bytes,
                // It is never mapped: this is how wgpu is told to take host memory.
                usage: wgpu::BufferUsages::MAP_READ
                    | wgpu::BufferUsages::COPY_SRC
                    | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        })
    }

    fn page_out(&mut self, from: &Arc<Block>, to: &wgpu::Buffer, bytes: u64) {
        self.make_room();
        self.timed(Work::Download, bytes, |encoder| {
            encoder.copy_buffer_to_buffer(from.buffer(), 0, to, 0, bytes);
        });
        self.statistics.paged_out += bytes;
        self.count_page(bytes);
    }

    fn page_in(&mut self, from: &wgpu::Buffer, to: &Arc<Block>, bytes: u64) {
        self.make_room();
        self.timed(Work::Upload, bytes, |encoder| {
            encoder.copy_buffer_to_buffer(from, 0, to.buffer(), 0, bytes);
        });
        self.statistics.paged_in += bytes;
        self.count_page(bytes);
    }

    fn release(&mut self, frame: Arc<Block>, bytes: u64) {
        self.bind_groups.free(&frame);
        self.leaving.push((self.serial(), bytes));
    }
}
