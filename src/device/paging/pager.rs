//! Decides which tensors are in device memory, and records the copies that this takes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::Link;
use crate::error::{Error, Result};

/// The part of the device's memory, as a divisor, that frames on their way back to the driver may
/// take.
pub(crate) const LEAVING: u64 = 8;

/// Makes the buffers and records the copies.
pub(crate) trait Mover {
    /// A buffer in device memory.
    type Frame: Clone;
    /// A buffer in host memory.
    type Host: Clone;

    /// Makes a frame. `number` is its own.
    fn frame(&mut self, number: u32, bytes: u64) -> Result<Self::Frame>;

    /// Makes a buffer in host memory.
    fn host(&mut self, bytes: u64) -> Result<Self::Host>;

    /// Copies the first bytes of a frame to host memory.
    fn page_out(&mut self, from: &Self::Frame, to: &Self::Host, bytes: u64);

    /// Copies bytes from host memory to the start of a frame.
    fn page_in(&mut self, from: &Self::Host, to: &Self::Frame, bytes: u64);

    /// Gives a frame back to the driver. Recorded work may still use it.
    fn release(&mut self, frame: Self::Frame, bytes: u64);
}

/// What a command does with a tensor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    /// The tensor's key.
    pub key: u64,
    /// Its length.
    pub bytes: u64,
    /// Whether the command may write it.
    pub writes: bool,
    /// Whether the command writes all of it and reads nothing of it.
    pub replaces: bool,
}

struct Tensor<M: Mover> {
    bytes: u64,
    frame: Option<M::Frame>,
    host: Option<M::Host>,
    /// Whether a command has written it.
    has_contents: bool,
    /// Whether the bytes in host memory are the tensor's.
    is_current: bool,
    /// When a command last used it.
    used: u64,
}

/// The tensors that have frames, by the size classes of their frames and in the order of use.
#[derive(Default)]
struct ByUse(BTreeMap<u64, BTreeSet<(u64, u64)>>);

impl ByUse {
    /// Adds the tensor `key`, whose frame has `class` bytes and which was used at the time `used`.
    fn insert(&mut self, class: u64, used: u64, key: u64) {
        self.0.entry(class).or_default().insert((used, key));
    }

    fn remove(&mut self, class: u64, used: u64, key: u64) {
        if let Some(order) = self.0.get_mut(&class) {
            order.remove(&(used, key));
        }
    }

    /// The time and key of the least recently used tensor.
    fn oldest(&self) -> Option<(u64, u64)> {
        self.0.values().filter_map(BTreeSet::first).min().copied()
    }

    /// The same among the tensors whose frames have `class` bytes.
    fn oldest_of(&self, class: u64) -> Option<(u64, u64)> {
        self.0.get(&class)?.first().copied()
    }
}

/// The large tensors of a device, with their places. All methods are called with the recorder's
/// lock held, in the order of the recorded commands.
pub(crate) struct Pager<M: Mover> {
    link: Arc<Link>,
    tensors: FxHashMap<u64, Tensor<M>>,
    here_by_use: ByUse,
    /// Frames that hold no tensor, with their bytes; the latest last.
    idle: Vec<(u64, M::Frame)>,
    /// The same in host memory.
    idle_hosts: Vec<(u64, M::Host)>,
    /// Bytes of all frames.
    device: u64,
    /// Bytes of tensors that have frames.
    here: u64,
    /// Bytes of all buffers in host memory.
    host: u64,
    /// Counts commands.
    clock: u64,
}

impl<M: Mover> Pager<M> {
    pub fn new(link: Arc<Link>) -> Self {
        Self {
            link,
            tensors: FxHashMap::default(),
            here_by_use: ByUse::default(),
            idle: Vec::new(),
            idle_hosts: Vec::new(),
            device: 0,
            here: 0,
            host: 0,
            clock: 0,
        }
    }

    /// What device and recorder share.
    pub const fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Puts the tensors of a command into device memory and returns their frames, in order. To be
    /// called right before the command is recorded.
    pub fn place(&mut self, accesses: &[Access], mover: &mut M) -> Result<SmallVec<[M::Frame; 8]>> {
        self.collect();
        self.clock += 1;
        for access in accesses {
            let fresh = || Tensor {
                bytes: access.bytes,
                frame: None,
                host: None,
                has_contents: false,
                is_current: false,
                used: 0,
            };
            let tensor = self.tensors.entry(access.key).or_insert_with(fresh);
            if tensor.frame.is_some() {
                let class = size_class(tensor.bytes);
                self.here_by_use.remove(class, tensor.used, access.key);
                self.here_by_use.insert(class, self.clock, access.key);
            }
            // A tensor with this time is not evicted.
            tensor.used = self.clock;
        }
        let frames = accesses.iter().map(|access| self.fetch(access, mover)).collect();
        let frames: SmallVec<[M::Frame; 8]> = match frames {
            Ok(frames) => frames,
            Err(e) => return Err(self.explained(e, accesses)),
        };
        self.link.set_large(self.here);
        for access in accesses.iter().filter(|access| access.writes) {
            if let Some(tensor) = self.tensors.get_mut(&access.key) {
                tensor.has_contents = true;
                tensor.is_current = false;
            }
        }
        Ok(frames)
    }

    /// The buffer in host memory that begins with a tensor's bytes, if the tensor is there alone.
    pub fn away(&mut self, key: u64) -> Option<M::Host> {
        self.collect();
        let tensor = self.tensors.get(&key)?;
        tensor.host.clone().filter(|_| tensor.is_current && tensor.frame.is_none())
    }

    /// Bytes of tensors that are in host memory alone.
    pub fn bytes_away(&mut self) -> u64 {
        self.collect();
        let is_away = |t: &&Tensor<M>| t.has_contents && t.frame.is_none();
        self.tensors.values().filter(is_away).map(|t| t.bytes).sum()
    }

    /// Gives all memory without tensors back to the driver.
    pub fn release_idle(&mut self, mover: &mut M) {
        self.collect();
        self.idle_hosts.drain(..).for_each(|(bytes, _)| self.host -= bytes);
        for (bytes, frame) in self.idle.drain(..) {
            self.device -= bytes;
            mover.release(frame, bytes);
        }
    }

    /// Takes back the memory of freed tensors.
    fn collect(&mut self) {
        let freed = std::mem::take(&mut *self.link.freed.lock());
        if freed.is_empty() {
            return;
        }
        for (key, tensor) in freed.iter().filter_map(|key| self.tensors.remove_entry(key)) {
            let class = size_class(tensor.bytes);
            if let Some(frame) = tensor.frame {
                self.here_by_use.remove(class, tensor.used, key);
                self.here -= tensor.bytes;
                self.idle.push((class, frame));
            }
            self.idle_hosts.extend(tensor.host.map(|host| (class, host)));
        }
        self.link.set_large(self.here);
    }

    /// The frame of a tensor, with its contents.
    fn fetch(&mut self, access: &Access, mover: &mut M) -> Result<M::Frame> {
        if let Some(frame) = self.tensors.get(&access.key).and_then(|t| t.frame.clone()) {
            return Ok(frame);
        }
        let frame = self.take_frame(size_class(access.bytes), mover)?;
        if let Some(tensor) = self.tensors.get_mut(&access.key) {
            // A tensor without a frame has its contents in host memory.
            if let Some(host) = tensor.host.as_ref().filter(|_| tensor.has_contents)
                && !access.replaces
            {
                mover.page_in(host, &frame, tensor.bytes);
            }
            tensor.frame = Some(frame.clone());
            self.here_by_use.insert(size_class(tensor.bytes), tensor.used, access.key);
            self.here += tensor.bytes;
        }
        Ok(frame)
    }

    /// A frame of `class` bytes, for which other tensors may have to leave.
    fn take_frame(&mut self, class: u64, mover: &mut M) -> Result<M::Frame> {
        let (mut refusal, mut is_last) = (None, false);
        loop {
            let room = self.link.room();
            // The rest is for frames on their way back to the driver.
            let most = if is_last { room } else { room - room / LEAVING };
            if let Some(at) = self.idle.iter().rposition(|(bytes, _)| *bytes == class) {
                return Ok(self.idle.remove(at).1);
            }
            if self.device + class <= most {
                match mover.frame(self.link.number_block(), class) {
                    Ok(frame) => {
                        self.device += class;
                        return Ok(frame);
                    }
                    // The driver has less memory than it reported.
                    Err(e @ Error::ResourceExhausted(_)) => refusal = Some(e),
                    Err(e) => return Err(e),
                }
            }
            if !self.idle.is_empty() {
                let (bytes, frame) = self.idle.remove(0);
                self.device -= bytes;
                mover.release(frame, bytes);
            } else if !self.evict(class, mover)? {
                if !std::mem::replace(&mut is_last, true) {
                    continue;
                }
                return Err(refusal
                    .unwrap_or_else(|| Error::ResourceExhausted("device memory is full".into())));
            }
        }
    }

    /// Moves the least recently used tensor to host memory, so that its frame is idle. A tensor
    /// whose frame has `class` bytes goes before one with another frame, unless it was used much
    /// later.
    /// Returns whether there was a tensor.
    fn evict(&mut self, class: u64, mover: &mut M) -> Result<bool> {
        let Some((since, oldest)) = self.here_by_use.oldest().filter(|(u, _)| *u < self.clock)
        else {
            return Ok(false);
        };
        // In the older half of all times.
        let middle = since + (self.clock - since) / 2;
        let fitting = self.here_by_use.oldest_of(class).filter(|(used, _)| *used <= middle);
        self.page_out(fitting.map_or(oldest, |(_, key)| key), mover).map(|()| true)
    }

    /// Moves a tensor to host memory.
    fn page_out(&mut self, key: u64, mover: &mut M) -> Result<()> {
        let Some(tensor) = self.tensors.get(&key) else { return Ok(()) };
        let class = size_class(tensor.bytes);
        let host = if !tensor.has_contents || tensor.is_current {
            tensor.host.clone()
        } else if let Some(host) = tensor.host.clone() {
            Some(host)
        } else {
            Some(self.take_host(class, key, mover)?)
        };
        let Some(tensor) = self.tensors.get_mut(&key) else { return Ok(()) };
        let Some(frame) = tensor.frame.take() else { return Ok(()) };
        self.here_by_use.remove(class, tensor.used, key);
        if tensor.has_contents
            && !tensor.is_current
            && let Some(host) = &host
        {
            mover.page_out(&frame, host, tensor.bytes);
            tensor.is_current = true;
        }
        tensor.host = host;
        self.here -= tensor.bytes;
        self.idle.push((class, frame));
        Ok(())
    }

    /// A buffer of `class` bytes in host memory, for the tensor `key`. Copies of tensors that are
    /// in device memory too make room for it.
    fn take_host(&mut self, class: u64, key: u64, mover: &mut M) -> Result<M::Host> {
        if let Some(at) = self.idle_hosts.iter().rposition(|(bytes, _)| *bytes == class) {
            return Ok(self.idle_hosts.remove(at).1);
        }
        while self.host + class > self.link.limits.host {
            if !self.idle_hosts.is_empty() {
                self.host -= self.idle_hosts.remove(0).0;
                continue;
            }
            // A copy with old contents is worth least.
            let spare = self
                .tensors
                .iter_mut()
                .filter(|(k, t)| **k != key && t.host.is_some() && t.frame.is_some());
            let Some((_, tensor)) = spare.min_by_key(|(_, t)| (t.is_current, t.used)) else {
                // All that is left are tensors; their number of bytes is limited elsewhere.
                break;
            };
            tensor.host = None;
            tensor.is_current = false;
            self.host -= size_class(tensor.bytes);
        }
        let host = mover.host(class)?;
        self.host += class;
        Ok(host)
    }

    /// The error of a command that does not find room for its tensors.
    fn explained(&self, error: Error, accesses: &[Access]) -> Error {
        let Error::ResourceExhausted(why) = &error else { return error };
        let mut keys: Vec<_> = accesses.iter().map(|a| (a.key, a.bytes)).collect();
        keys.sort_unstable();
        keys.dedup();
        let bytes: u64 = keys.iter().map(|(_, bytes)| bytes).sum();
        Error::ResourceExhausted(format!(
            "an operation uses {bytes} bytes of large tensors at once, and {} bytes of device \
             memory are there for tensors: {why}",
            self.link.room()
        ))
    }
}

/// The bytes of the buffers for a tensor of `bytes`: at most an eighth more, so that tensors of
/// about the same size can take each other's buffers.
pub(super) fn size_class(bytes: u64) -> u64 {
    let step = (bytes.next_power_of_two() / 16).max(1 << 12);
    bytes.next_multiple_of(step)
}
