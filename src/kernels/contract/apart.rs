//! Programs are tried on a device of their own before they are used: a driver that hangs in one, or
//! loses the device, then harms no tensor.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::programs::Programs;
use crate::device::{Binding, Device, Dispatches};
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

/// 1.875 as float16, 1 as bfloat16 and as float32: zeros may take less power, and so less time.
const ONES: u32 = 0x3f80_3f80;
/// The alignment of bindings: each begins at a multiple of it in its block.
const ALIGNMENT: u64 = 256;

/// A device apart, with memory for operands.
pub(super) struct Apart {
    device: Arc<Device>,
    /// Blocks of tensors.
    blocks: Vec<u64>,
    /// Blocks of the last programs' temporaries.
    temporaries: Vec<u64>,
    /// Where bindings of another device lie on this one, by their address and bytes.
    operands: FxHashMap<(u64, u64), u64>,
}

impl Apart {
    /// Memory on a device that was opened by [`Device::beside`].
    pub fn on(device: Arc<Device>) -> Self {
        let (blocks, temporaries) = (Vec::new(), Vec::new());
        Self { device, blocks, temporaries, operands: FxHashMap::default() }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn allocate(&mut self, bytes: u64) -> Result<u64> {
        let address = self.device.allocate(bytes)?;
        self.blocks.push(address);
        Ok(address)
    }

    /// An uninitialized tensor.
    pub fn tensor(&mut self, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        let tensor = Tensor::new(dtype, dims, 0);
        Ok(Tensor { address: self.allocate(tensor.bytes())?, ..tensor })
    }

    /// A tensor of numbers near 1.
    pub fn ones(&mut self, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        let tensor = self.tensor(dtype, dims)?;
        self.device.fill(tensor.address, tensor.bytes(), ONES)?;
        Ok(tensor)
    }

    /// Where a binding lies here: at its own address if that is one of this device, else in memory
    /// of the same size and alignment.
    fn place(&mut self, binding: &Binding) -> Result<u64> {
        let Binding { address, bytes, .. } = *binding;
        if bytes == 0 || self.device.owns(address) {
            return Ok(address);
        }
        if let Some(here) = self.operands.get(&(address, bytes)) {
            return Ok(*here);
        }
        let rest = address % ALIGNMENT;
        let size = (rest + bytes).next_multiple_of(4);
        let block = self.allocate(size)?;
        self.device.fill(block, size, ONES)?;
        self.operands.insert((address, bytes), block + rest);
        Ok(block + rest)
    }

    /// The dispatches of programs. Their operands may be those of another device; then numbers near
    /// 1 stand in for them.
    fn gathered(&mut self, programs: Programs) -> Result<Dispatches> {
        let device = self.device.clone();
        // Enqueued programs keep their memory.
        self.temporaries.drain(..).try_for_each(|address| device.deallocate(address))?;
        let memory = programs.temporaries.allocate_by(&mut |words| {
            let address = device.allocate(4 * words as u64)?;
            self.temporaries.push(address);
            Ok(address)
        })?;
        programs.gather_on(&device, &memory, &mut |binding| self.place(binding))
    }

    /// Runs programs without waiting for them.
    pub fn run(&mut self, programs: Programs) -> Result<()> {
        let dispatches = self.gathered(programs)?;
        self.device.enqueue_gathered(dispatches)
    }

    /// Runs programs. Returns the nanoseconds that they take once they are compiled.
    pub fn time(&mut self, programs: Programs) -> Result<u64> {
        programs.prepare(&self.device)?;
        let dispatches = self.gathered(programs)?;
        let timer = self.device.timer();
        timer.start(&self.device);
        self.device.enqueue_gathered(dispatches)?;
        timer.stop(&self.device);
        timer.nanoseconds(&self.device)
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        for address in self.blocks.drain(..).chain(self.temporaries.drain(..)) {
            // A lost device has nothing left to free.
            let _ = self.device.deallocate(address);
        }
    }
}
