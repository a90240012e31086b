//! Device memory: addresses that TensorFlow may do arithmetic on, and the buffers behind them.
//!
//! Every block is one wgpu buffer at an address inside the device's reserved range. TensorFlow's
//! BFC allocator asks for few large blocks and cuts them itself, so an address that reaches a
//! kernel or a copy is usually interior. On a device that pages, TensorFlow allocates each tensor,
//! and a block may be addresses only: see [`super::paging`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use super::checked::checked;
use super::completion::Serial;
use super::last_use::LastUse;
use super::paging::{Link, PagedTensor};
use super::slots::{self, Slots};
use crate::error::{Error, Result};
use crate::sys::address_range::AddressRange;
use crate::sys::host_visible;

/// Blocks start at multiples of this, which exceeds every alignment that TensorFlow or a GPU asks
/// for.
const BLOCK_ALIGNMENT: u64 = 1 << 16;

/// A buffer and the addresses that it backs.
#[derive(Debug)]
pub(crate) struct Block {
    /// Unique for the life of the device; keys the bind-group cache. A paged tensor has 0: its
    /// bytes are in another block, a frame.
    pub id: u32,
    backing: Backing,
    /// Present if the host reads and writes the buffer where it is.
    last_use: Option<LastUse>,
    pub address: u64,
    pub bytes: u64,
}

/// What holds the bytes of a block.
#[derive(Debug)]
enum Backing {
    Buffer(wgpu::Buffer),
    /// The frame that the pager gives it.
    Paged(PagedTensor),
}

impl Block {
    /// A buffer without addresses.
    pub fn frame(id: u32, buffer: wgpu::Buffer) -> Self {
        let bytes = buffer.size();
        Self { id, backing: Backing::Buffer(buffer), last_use: None, address: 0, bytes }
    }

    /// The block's buffer. The recorder puts frames in the place of paged tensors before it gets
    /// here.
    pub fn buffer(&self) -> &wgpu::Buffer {
        match &self.backing {
            Backing::Buffer(buffer) => buffer,
            Backing::Paged(_) => unreachable!("the pager has given the tensor a frame"),
        }
    }

    /// Whether the host may read and write the buffer where it is.
    pub const fn is_host_visible(&self) -> bool {
        self.last_use.is_some()
    }

    /// Notes that a submission uses a part of the block.
    pub fn note_use(&self, range: &Range<u64>, serial: Serial) {
        if let Some(uses) = &self.last_use {
            uses.note(range, serial);
        }
    }

    /// The last submission that may use a part of the block, if the host may write to it where it
    /// is.
    pub fn last_use(&self, range: &Range<u64>) -> Option<Serial> {
        self.last_use.as_ref().map(|uses| uses.of(range))
    }

    /// The tensor's key, if the pager decides where its bytes are.
    pub fn paged(&self) -> Option<u64> {
        match &self.backing {
            Backing::Buffer(_) => None,
            Backing::Paged(tensor) => Some(tensor.key),
        }
    }
}

/// A buffer for tensors.
pub(crate) fn storage_buffer(
    device: &wgpu::Device,
    label: &str,
    size: u64,
) -> Result<wgpu::Buffer> {
    tensor_buffer(device, label, size, wgpu::BufferUsages::empty())
}

/// A buffer for tensors with one more usage.
fn tensor_buffer(
    device: &wgpu::Device,
    label: &str,
    size: u64,
    more: wgpu::BufferUsages,
) -> Result<wgpu::Buffer> {
    checked(device, label, || {
        device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage: wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::COPY_SRC
                | wgpu::BufferUsages::COPY_DST
                | more,
            mapped_at_creation: false,
        })
    })
    .map_err(|e| match e {
        Error::Unavailable(_) => e,
        // Whatever error the driver reports, TensorFlow should try a smaller size.
        _ => Error::ResourceExhausted(e.to_string()),
    })
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
    paged: Option<Paged>,
    /// Whether the host reads and writes tensors where they are.
    unstaged: bool,
}

/// The part of a device that pages.
struct Paged {
    link: Arc<Link>,
    slots: Mutex<Slots>,
}

/// Memory that was freed.
pub(crate) struct Freed {
    pub address: u64,
    pub bytes: u64,
    /// The block, if bind groups may hold its buffer.
    pub block: Option<Arc<Block>>,
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
    /// For a device that has `total` bytes, some of them in host memory if it pages. The host reads
    /// and writes tensors where they are if `unstaged`; a device that pages cannot do so.
    pub fn new(
        device: wgpu::Device,
        max_buffer: u64,
        total: u64,
        paging: Option<Arc<Link>>,
        unstaged: bool,
    ) -> Result<Self> {
        Ok(Self {
            device,
            range: AddressRange::reserve(total)?,
            total,
            max_buffer,
            next_id: AtomicU32::new(0),
            blocks: RwLock::default(),
            spare: Mutex::default(),
            book: Mutex::default(),
            unstaged: unstaged && paging.is_none(),
            paged: paging.map(|link| Paged { link, slots: Mutex::default() }),
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
        let size = match bytes.max(4).checked_next_multiple_of(256) {
            Some(size) if size <= self.max_buffer => size,
            _ => {
                return Err(exhausted(
                    bytes,
                    &format!("the adapter's largest buffer has {} bytes", self.max_buffer),
                ));
            }
        };
        if let Some(paged) = &self.paged {
            return self.allocate_tensor(paged, size);
        }
        let buffer = self.buffer(bytes, size)?;
        let address = self.take_addresses(bytes, size)?;
        self.book.lock().stats.add(size);
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let is_visible = self.unstaged && host_visible::is_visible(&self.device, &buffer);
        let last_use = is_visible.then(|| LastUse::new(size));
        self.insert(Block { id, backing: Backing::Buffer(buffer), last_use, address, bytes: size });
        Ok(address)
    }

    /// Allocates a tensor of a device that pages.
    fn allocate_tensor(&self, paged: &Paged, size: u64) -> Result<u64> {
        let is_small = size <= slots::LARGEST;
        let size = if is_small { slots::slot_bytes(size) } else { size };
        if self.book.lock().stats.in_use + size > self.total {
            return Err(exhausted(
                size,
                &format!("tensors take nearly all of {} bytes, with host memory", self.total),
            ));
        }
        let address = if is_small {
            let address = self.take_slot(paged, size)?;
            paged.link.count_small(size, true);
            address
        } else {
            let address = self.take_addresses(size, size)?;
            let backing = Backing::Paged(PagedTensor::new(&paged.link));
            self.insert(Block { id: 0, backing, last_use: None, address, bytes: size });
            address
        };
        self.book.lock().stats.add(size);
        Ok(address)
    }

    /// A slot of `bytes` in a buffer of slots.
    fn take_slot(&self, paged: &Paged, bytes: u64) -> Result<u64> {
        let mut slots = paged.slots.lock();
        if let Some(address) = slots.take(bytes) {
            return Ok(address);
        }
        let buffer = self.buffer(bytes, slots::ARENA)?;
        let address = self.take_addresses(bytes, slots::ARENA)?;
        let id = paged.link.number_block();
        paged.link.add_fixed(slots::ARENA);
        self.insert(Block {
            id,
            backing: Backing::Buffer(buffer),
            last_use: None,
            address,
            bytes: slots::ARENA,
        });
        slots.add(address, bytes);
        slots.take(bytes).ok_or_else(|| Error::Internal("a new buffer has no slots".into()))
    }

    /// A buffer of `size` bytes for an allocation of `bytes`.
    fn buffer(&self, bytes: u64, size: u64) -> Result<wgpu::Buffer> {
        // By this usage alone, wgpu prefers memory that the processor's caches hold.
        let more =
            if self.unstaged { wgpu::BufferUsages::MAP_READ } else { wgpu::BufferUsages::empty() };
        let label = format!("cannot allocate {bytes} bytes of device memory");
        tensor_buffer(&self.device, &label, size, more)
    }

    /// Addresses for a block of `size` bytes.
    fn take_addresses(&self, bytes: u64, size: u64) -> Result<u64> {
        let slot = size_class(size);
        let mut book = self.book.lock();
        let offset = match book.free.get_mut(&slot).and_then(Vec::pop) {
            Some(offset) => offset,
            None if book.top + slot <= self.range.len() => {
                let offset = book.top;
                book.top += slot;
                offset
            }
            None => return Err(exhausted(bytes, "the reserved address range is full")),
        };
        Ok(self.range.start() + offset)
    }

    fn insert(&self, block: Block) {
        self.blocks.write().insert(block.address, Arc::new(block));
    }

    /// Frees the block or the slot that starts at `address`. Its buffer lives on until the GPU is
    /// done with it.
    pub fn deallocate(&self, address: u64) -> Result<Freed> {
        if let Some(paged) = &self.paged
            && let Some(bytes) = paged.slots.lock().give_back(address)
        {
            paged.link.count_small(bytes, false);
            self.book.lock().stats.in_use -= bytes;
            return Ok(Freed { address, bytes, block: None });
        }
        let block = self.blocks.write().remove(&address);
        let Some(block) = block else {
            return Err(Error::Internal(format!(
                "no block of device memory starts at {address:#x}"
            )));
        };
        let mut book = self.book.lock();
        book.stats.in_use -= block.bytes;
        book.free.entry(size_class(block.bytes)).or_default().push(address - self.range.start());
        let bytes = block.bytes;
        Ok(Freed { address, bytes, block: block.paged().is_none().then_some(block) })
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

fn exhausted(bytes: u64, why: &str) -> Error {
    Error::ResourceExhausted(format!("cannot allocate {bytes} bytes of device memory: {why}"))
}

impl MemoryStats {
    /// Counts an allocation.
    fn add(&mut self, size: u64) {
        self.allocations += 1;
        self.in_use += size;
        self.peak = self.peak.max(self.in_use);
        self.largest = self.largest.max(size);
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
