//! Paging: large tensors that are not in use may live in host memory. An option of a device, off by
//! default.
//!
//! TensorFlow then allocates each tensor by itself, so a tensor's life is known. A large tensor is
//! addresses only. It has a buffer in device memory, a frame, from when a command uses it until
//! other tensors need the memory. The [`Pager`] decides that when a command is recorded, so all
//! copies between frames and host memory run in the queue's order, and nothing waits for them.
//! Small tensors share buffers that stay in device memory ([`super::slots`]).

mod pager;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::budget::{self, MemoryBudget};

pub(crate) use pager::{Access, LEAVING, Mover, Pager};

/// The variable with the bytes of host memory.
const VARIABLE: &str = "TF_WGPU_PAGING";

/// The limits of a device that pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paging {
    /// Bytes of device memory.
    pub device: u64,
    /// Bytes of host memory that tensors may take beyond it.
    pub host: u64,
}

impl Paging {
    /// The feature of wgpu that it needs: buffers in host memory that copies go to and come from.
    pub(super) const FEATURE: wgpu::Features = wgpu::Features::MAPPABLE_PRIMARY_BUFFERS;

    /// The memory for tensors when they use `in_use` bytes.
    pub(super) fn budget(self, in_use: u64) -> MemoryBudget {
        let total = self.device.saturating_add(self.host);
        MemoryBudget { total, free: total.saturating_sub(in_use), reported: false }
    }
}

/// The bytes of host memory that `TF_WGPU_PAGING`, as `lookup` gives it, lets tensors take. None if
/// devices do not page.
pub fn wanted(lookup: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    lookup(VARIABLE).and_then(|text| budget::bytes(&text)).filter(|bytes| *bytes > 0)
}

/// A line about `TF_WGPU_PAGING`, as `lookup` gives it, if its value is invalid.
pub fn problem(lookup: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let is_invalid = |text: &String| !text.trim().is_empty() && budget::bytes(text).is_none();
    let text = lookup(VARIABLE).filter(is_invalid)?;
    Some(format!(
        "{VARIABLE}={text}: not a number of bytes of host memory, such as 8G; tensors stay in \
         device memory"
    ))
}

/// The state that a paging device's memory, its recorder and its threads share.
#[derive(Debug)]
pub(crate) struct Link {
    pub limits: Paging,
    /// The number of the next buffer. It keys bind groups.
    next_block: AtomicU32,
    next_tensor: AtomicU64,
    /// Bytes of device memory that the pager does not manage.
    fixed: AtomicU64,
    /// Bytes of tensors in device memory: small ones, and large ones.
    used: [AtomicU64; 2],
    /// The largest sum of the two so far.
    peak: AtomicU64,
    /// Tensors that nothing will use any more.
    freed: Mutex<Vec<u64>>,
    /// The submission after which there will be device memory for new frames.
    awaited: AtomicU64,
}

impl Link {
    /// For a device with these limits.
    pub fn new(limits: Paging) -> Arc<Self> {
        Arc::new(Self {
            limits,
            next_block: AtomicU32::new(0),
            next_tensor: AtomicU64::new(0),
            fixed: AtomicU64::new(0),
            used: Default::default(),
            peak: AtomicU64::new(0),
            freed: Mutex::default(),
            awaited: AtomicU64::new(0),
        })
    }

    /// A number for a buffer.
    pub fn number_block(&self) -> u32 {
        self.next_block.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts device memory that the pager does not manage and that is never freed.
    pub fn add_fixed(&self, bytes: u64) {
        self.fixed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts small tensors that are made (true) or freed.
    pub fn count_small(&self, bytes: u64, made: bool) {
        let [small, _] = &self.used;
        if made {
            small.fetch_add(bytes, Ordering::Relaxed);
            self.note_peak();
        } else {
            small.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Sets the bytes of large tensors in device memory.
    fn set_large(&self, bytes: u64) {
        self.used[1].store(bytes, Ordering::Relaxed);
        self.note_peak();
    }

    /// Bytes of tensors in device memory.
    pub fn in_use(&self) -> u64 {
        self.used.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum()
    }

    /// The most bytes of tensors in device memory since [`Self::reset_peak`].
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Lets the peak begin anew.
    pub fn reset_peak(&self) {
        self.peak.store(self.in_use(), Ordering::Relaxed);
    }

    fn note_peak(&self) {
        self.peak.fetch_max(self.in_use(), Ordering::Relaxed);
    }

    /// The bytes that frames may take.
    pub fn room(&self) -> u64 {
        self.limits.device.saturating_sub(self.fixed.load(Ordering::Relaxed))
    }

    /// The submission that a thread should wait for before it records more, so that memory on its
    /// way back to the driver is back; 0 if there is none.
    pub fn awaited(&self) -> u64 {
        self.awaited.load(Ordering::Relaxed)
    }

    /// Says that memory will be back after this submission.
    pub fn set_awaited(&self, serial: u64) {
        self.awaited.store(serial, Ordering::Relaxed);
    }
}

/// The identity of a large tensor. Its memory is free when the value is dropped: when TensorFlow
/// has freed the tensor and no dispatch waits with it.
#[derive(Debug)]
pub(crate) struct PagedTensor {
    link: Arc<Link>,
    /// Unique for the life of the device.
    pub key: u64,
}

impl PagedTensor {
    /// A new tensor.
    pub fn new(link: &Arc<Link>) -> Self {
        Self { link: link.clone(), key: link.next_tensor.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for PagedTensor {
    fn drop(&mut self) {
        self.link.freed.lock().push(self.key);
    }
}
