//! Buffers for data that the host gives to single dispatches: tables of words, and parameter blocks
//! that exceed the adapter's immediates. Each dispatch of a batch has its own place in them.

use super::bind_groups::BindGroups;
use super::checked::checked;
use crate::error::Result;

/// The bytes in one submission, unless one table or block alone is larger.
const ROOM: u64 = 1 << 20;

/// One of these buffers. Tables and parameters have separate buffers because they are bound in
/// different ways: wgpu takes a table's binding for one that may be written, and a parameter block
/// is a uniform buffer, which does not count towards the limits for tensors.
pub(super) struct Parameters {
    buffer: wgpu::Buffer,
    /// The id that stands for the buffer in place of a block's number. Blocks count up from 0,
    /// these count down from the largest number, in steps of [`Self::KINDS`].
    id: u32,
    usage: wgpu::BufferUsages,
    /// Offsets are multiples of this number.
    alignment: usize,
    /// The bytes recorded so far, copied to the buffer at once when they are submitted.
    bytes: Vec<u8>,
}

impl Parameters {
    const KINDS: u32 = 2;

    /// The buffer of tables.
    pub fn of_tables(device: &wgpu::Device) -> Result<Self> {
        let alignment = device.limits().min_storage_buffer_offset_alignment;
        Self::new(device, wgpu::BufferUsages::STORAGE, alignment, u32::MAX)
    }

    /// The buffer of parameter blocks.
    pub fn of_blocks(device: &wgpu::Device) -> Result<Self> {
        let alignment = device.limits().min_uniform_buffer_offset_alignment;
        Self::new(device, wgpu::BufferUsages::UNIFORM, alignment, u32::MAX - 1)
    }

    fn new(
        device: &wgpu::Device,
        usage: wgpu::BufferUsages,
        alignment: u32,
        id: u32,
    ) -> Result<Self> {
        let buffer = make(device, usage, ROOM)?;
        Ok(Self { buffer, id, usage, alignment: alignment as usize, bytes: Vec::new() })
    }

    /// The buffer.
    pub const fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// The id that stands for the buffer in place of a block's number.
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Whether `bytes` fit beside the recorded bytes.
    pub fn has_room(&self, bytes: &[u8]) -> bool {
        (self.bytes.len() + bytes.len().next_multiple_of(self.alignment)) as u64
            <= self.buffer.size()
    }

    /// Starts anew, with a larger buffer if this one cannot hold `bytes`. No recorded work may use
    /// the buffer: its present contents belong to dispatches that failed.
    pub fn restart<G: Clone>(
        &mut self,
        device: &wgpu::Device,
        bytes: &[u8],
        groups: &mut BindGroups<G>,
    ) -> Result<()> {
        self.bytes.clear();
        if !self.has_room(bytes) {
            let held = self.buffer.size();
            self.buffer = make(device, self.usage, (bytes.len() as u64).next_power_of_two())?;
            groups.forget(self.id, held);
            self.id -= Self::KINDS;
        }
        Ok(())
    }

    /// Keeps bytes for the next submission and returns their offset in the buffer.
    pub fn place(&mut self, bytes: &[u8]) -> u64 {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(self.alignment), 0);
        at as u64
    }

    /// The buffer and its contents during the submission, if it is used.
    pub fn take(&mut self) -> Option<(wgpu::Buffer, Vec<u8>)> {
        (!self.bytes.is_empty()).then(|| (self.buffer.clone(), std::mem::take(&mut self.bytes)))
    }
}

fn make(device: &wgpu::Device, usage: wgpu::BufferUsages, bytes: u64) -> Result<wgpu::Buffer> {
    checked(device, "cannot hold the parameters of programs", || {
        device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("parameters"),
            size: bytes,
            usage: usage | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    })
}
