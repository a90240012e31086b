//! Staging buffers of large uploads. They are kept mapped for later uploads: memory that is new to
//! the process costs it a page fault every 4 KiB, which takes longer than copying 4 KiB.

use std::sync::Arc;

use parking_lot::Mutex;

use super::checked::checked;
use crate::error::{Error, Result};

/// The number of buffers that are kept.
const MAX_KEPT: usize = 8;
/// The bytes of all kept buffers together.
const MAX_BYTES: u64 = 256 << 20;

/// Mapped buffers that are not in use.
#[derive(Clone, Default)]
pub(crate) struct Staging {
    idle: Arc<Mutex<Vec<wgpu::Buffer>>>,
}

impl Staging {
    /// A buffer that begins with `bytes`, whose number is a multiple of 4. The caller gives it back
    /// with [`Self::recall`].
    pub fn stage(&self, device: &wgpu::Device, bytes: &[u8]) -> Result<wgpu::Buffer> {
        let len = bytes.len() as u64;
        let buffer = self.take(device, len)?;
        let mut view =
            buffer.get_mapped_range_mut(..len).map_err(|e| Error::Internal(e.to_string()))?;
        view.copy_from_slice(bytes);
        drop(view);
        buffer.unmap();
        Ok(buffer)
    }

    /// A mapped buffer of at least `len` bytes, a multiple of 4. The caller unmaps it and gives it
    /// back with [`Self::recall`].
    pub fn take(&self, device: &wgpu::Device, len: u64) -> Result<wgpu::Buffer> {
        let idle = {
            let mut idle = self.idle.lock();
            best(idle.iter().map(wgpu::Buffer::size), len).map(|i| idle.swap_remove(i))
        };
        idle.map_or_else(|| create(device, len), Ok)
    }

    /// Drops the idle buffers.
    pub fn release_idle(&self) {
        self.idle.lock().clear();
    }

    /// Takes a buffer back when the work recorded in `encoder` is done.
    pub fn recall(&self, encoder: &wgpu::CommandEncoder, buffer: &wgpu::Buffer) {
        let (idle, kept) = (self.idle.clone(), buffer.clone());
        encoder.map_buffer_on_submit(buffer, wgpu::MapMode::Write, .., move |mapped| {
            let mut idle = idle.lock();
            let bytes = idle.iter().map(wgpu::Buffer::size).sum::<u64>() + kept.size();
            if mapped.is_ok() && idle.len() < MAX_KEPT && bytes <= MAX_BYTES {
                idle.push(kept);
            }
        });
    }
}

/// The smallest of `sizes` that holds `len` bytes without wasting most of it.
fn best(sizes: impl Iterator<Item = u64>, len: u64) -> Option<usize> {
    let fitting =
        sizes.enumerate().filter(|(_, size)| (len..=len.saturating_mul(4)).contains(size));
    fitting.min_by_key(|(_, size)| *size).map(|(i, _)| i)
}

fn create(device: &wgpu::Device, len: u64) -> Result<wgpu::Buffer> {
    checked(device, &format!("cannot stage {len} bytes"), || {
        device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("upload"),
            size: len,
            usage: wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: true,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::best;

    #[test]
    fn the_smallest_that_fits_is_taken_and_none_that_is_much_too_large() {
        let sizes = || [100, 40, 400, 1000].into_iter();
        assert_eq!(best(sizes(), 40), Some(1));
        assert_eq!(best(sizes(), 41), Some(0));
        assert_eq!(best(sizes(), 101), Some(2));
        assert_eq!(best(sizes(), 401), Some(3));
        assert_eq!(best(sizes(), 1001), None);
        assert_eq!(best(sizes(), 9), None, "40 would be more than four times as much");
    }
}
