//! Device memory: addresses that TensorFlow may do arithmetic on, and the buffers behind them.
//!
//! Every block is one wgpu buffer at an address inside the device's reserved range. TensorFlow's
//! BFC allocator asks for few large blocks and cuts them itself, so an address that reaches a
//! kernel or a copy is usually interior.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use super::checked::checked;
use crate::error::{Error, Result};
use crate::sys::address_range::AddressRange;

/// Blocks start at multiples of this, which exceeds every alignment that TensorFlow or a GPU asks
/// for.
const BLOCK_ALIGNMENT: u64 = 1 << 16;

/// A buffer and the addresses that it backs.
#[derive(Debug)]
pub(crate) struct Block {
    /// Unique for the life of the device; keys the bind-group cache.
    pub id: u32,
    pub buffer: wgpu::Buffer,
    pub address: u64,
    pub bytes: u64,
}

/// Figures for TensorFlow's `SP_AllocatorStats` and the doctor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Allocations made so far.
    pub allocations: u64,
    /// Bytes in use.
    pub in_use: u64,
    /// Largest value of `in_use` so far.
    pub peak: u64,
    /// Largest single allocation so far.
    pub largest: u64,
}

pub(crate) struct Memory {
    device: wgpu::Device,
    range: AddressRange,
    /// Bytes that the device has.
    total: u64,
    max_buffer: u64,
    next_id: AtomicU32,
    blocks: RwLock<BTreeMap<u64, Arc<Block>>>,
    spare: Mutex<Option<Arc<Block>>>,
    book: Mutex<Book>,
}

/// Address bookkeeping: freed address ranges by size, and the statistics.
#[derive(Default)]
struct Book {
    /// First address that was never used, relative to the range.
    top: u64,
    free: BTreeMap<u64, Vec<u64>>,
    stats: MemoryStats,
}

impl Memory {
    /// For a device that has `total` bytes.
    pub fn new(device: wgpu::Device, max_buffer: u64, total: u64) -> Result<Self> {
        Ok(Self {
            device,
            range: AddressRange::reserve(total)?,
            total,
            max_buffer,
            next_id: AtomicU32::new(0),
            blocks: RwLock::default(),
            spare: Mutex::default(),
            book: Mutex::default(),
        })
    }

    /// Bytes that the device has, used ones included.
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Whether a buffer may have `bytes` at all.
    pub const fn is_possible(&self, bytes: u64) -> bool {
        bytes <= self.max_buffer
    }

    /// Allocates `bytes` of uninitialized memory and returns its address.
    pub fn allocate(&self, bytes: u64) -> Result<u64> {
        let exhausted = |why: &str| {
            Err(Error::ResourceExhausted(format!(
                "cannot allocate {bytes} bytes of device memory: {why}"
            )))
        };
        let size = match bytes.max(4).checked_next_multiple_of(256) {
            Some(size) if size <= self.max_buffer => size,
            _ => {
                return exhausted(&format!(
                    "the adapter's largest buffer has {} bytes",
                    self.max_buffer
                ));
            }
        };
        let label = format!("cannot allocate {bytes} bytes of device memory");
        let buffer = checked(&self.device, &label, || {
            self.device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size,
                usage: wgpu::BufferUsages::STORAGE
                    | wgpu::BufferUsages::COPY_SRC
                    | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        })
        .map_err(|e| match e {
            Error::Unavailable(_) => e,
            // Whatever error the driver reports, TensorFlow should try a smaller size.
            _ => Error::ResourceExhausted(e.to_string()),
        })?;
        let slot = size_class(size);
        let mut book = self.book.lock();
        let offset = match book.free.get_mut(&slot).and_then(Vec::pop) {
            Some(offset) => offset,
            None if book.top + slot <= self.range.len() => {
                let offset = book.top;
                book.top += slot;
                offset
            }
            None => return exhausted("the reserved address range is full"),
        };
        let stats = &mut book.stats;
        stats.allocations += 1;
        stats.in_use += size;
        stats.peak = stats.peak.max(stats.in_use);
        stats.largest = stats.largest.max(size);
        drop(book);
        let address = self.range.start() + offset;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.blocks.write().insert(address, Arc::new(Block { id, buffer, address, bytes: size }));
        Ok(address)
    }

    /// Frees the block that starts at `address`. The buffer lives on until the GPU is done with it.
    /// Returns the block.
    pub fn deallocate(&self, address: u64) -> Result<Arc<Block>> {
        let block = self.blocks.write().remove(&address);
        let Some(block) = block else {
            return Err(Error::Internal(format!(
                "no block of device memory starts at {address:#x}"
            )));
        };
        let mut book = self.book.lock();
        book.stats.in_use -= block.bytes;
        book.free.entry(size_class(block.bytes)).or_default().push(address - self.range.start());
        Ok(block)
    }

    /// The block that holds the `bytes` bytes at `address`.
    pub fn resolve(&self, address: u64, bytes: u64) -> Result<Arc<Block>> {
        self.blocks().resolve(address, bytes).cloned()
    }

    /// All blocks. No thread can allocate or free while the value lives; the caller must not do so
    /// itself.
    pub fn blocks(&self) -> Blocks<'_> {
        Blocks(self.blocks.read())
    }

    /// A block that is never freed, for bindings of empty tensors.
    pub fn spare(&self) -> Result<Arc<Block>> {
        let mut spare = self.spare.lock();
        if let Some(block) = &*spare {
            return Ok(block.clone());
        }
        let address = self.allocate(256)?;
        let block = self.resolve(address, 256)?;
        Ok(spare.insert(block).clone())
    }

    /// Whether `address` lies in this device's reserved range.
    pub fn contains(&self, address: u64) -> bool {
        (self.range.start()..self.range.start() + self.range.len()).contains(&address)
    }

    /// The number of bytes for which there are addresses.
    pub const fn room(&self) -> u64 {
        self.range.len()
    }

    /// Statistics so far.
    pub fn stats(&self) -> MemoryStats {
        self.book.lock().stats
    }
}

/// The blocks at one moment.
pub(crate) struct Blocks<'a>(RwLockReadGuard<'a, BTreeMap<u64, Arc<Block>>>);

impl Blocks<'_> {
    /// The block that holds the `bytes` bytes at `address`.
    pub fn resolve(&self, address: u64, bytes: u64) -> Result<&Arc<Block>> {
        match self.0.range(..=address).next_back() {
            // Written without sums that an invalid address or length would overflow.
            Some((_, block))
                if bytes <= block.bytes && address - block.address <= block.bytes - bytes =>
            {
                Ok(block)
            }
            _ => Err(Error::Internal(format!(
                "{bytes} bytes at {address:#x} are not in device memory"
            ))),
        }
    }
}

/// Address space taken by a block: rounded up so that freed ranges fit later blocks of about the
/// same size, with at least one unused page behind every block.
fn size_class(bytes: u64) -> u64 {
    let step = (bytes.next_power_of_two() / 8).max(BLOCK_ALIGNMENT);
    (bytes + 1).next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::size_class;

    #[test]
    fn classes_are_aligned_and_leave_a_gap() {
        for bytes in [256, 65_536, 65_792, 1 << 20, (1 << 20) + 256, 3 << 30] {
            let class = size_class(bytes);
            assert_eq!(class % super::BLOCK_ALIGNMENT, 0);
            assert!(
                class > bytes && class <= bytes + (bytes / 4).max(super::BLOCK_ALIGNMENT),
                "{bytes} -> {class}"
            );
        }
    }
}
