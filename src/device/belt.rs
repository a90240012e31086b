//! Small uploads. They share chunks of mapped memory, and are copied out of the chunks when their
//! batch runs.

use super::staging::Staging;
use crate::error::{Error, Result};

/// The size of a chunk in bytes.
const CHUNK: u64 = 1 << 20;

/// The chunks of the batch that is being recorded, and the chunks that later batches may use.
#[derive(Default)]
pub(crate) struct Belt {
    pool: Staging,
    open: Option<Chunk>,
    full: Vec<wgpu::Buffer>,
}

struct Chunk {
    buffer: wgpu::Buffer,
    used: u64,
}

impl Belt {
    /// Uploads up to this size, in bytes, are worth a copy into a chunk.
    pub const LIMIT: usize = CHUNK as usize / 4;

    /// Keeps a copy of at most [`Self::LIMIT`] bytes. Returns the buffer that holds it and the
    /// offset in it.
    pub fn write(&mut self, device: &wgpu::Device, bytes: &[u8]) -> Result<(&wgpu::Buffer, u64)> {
        let len = bytes.len() as u64;
        if self.open.as_ref().is_none_or(|chunk| chunk.used + len > chunk.buffer.size()) {
            let fresh = Chunk { buffer: self.pool.take(device, CHUNK)?, used: 0 };
            self.full.extend(self.open.replace(fresh).map(|chunk| chunk.buffer));
        }
        let chunk = self.open.as_mut().expect("there is one now");
        let at = chunk.used;
        let view = chunk.buffer.get_mapped_range_mut(at..at + len);
        view.map_err(|e| Error::Internal(format!("cannot stage {len} bytes: {e}")))?
            .copy_from_slice(bytes);
        // Mapped ranges begin at multiples of `MAP_ALIGNMENT`.
        chunk.used = (at + len).next_multiple_of(wgpu::MAP_ALIGNMENT);
        Ok((&chunk.buffer, at))
    }

    /// Gives the chunks to the GPU, and takes them back when the work recorded in `encoder` is
    /// done.
    pub fn hand_over(&mut self, encoder: &wgpu::CommandEncoder) {
        self.full.extend(self.open.take().map(|chunk| chunk.buffer));
        for buffer in self.full.drain(..) {
            buffer.unmap();
            self.pool.recall(encoder, &buffer);
        }
    }
}
