//! What to dispatch: programs with their bindings and with the temporary memory between them.
//!
//! Temporary tensors have addresses that no device has, until memory is allocated for them.

use smallvec::SmallVec;

use crate::device::{Binding, Device, Dispatches, Grid, Key, Params, Program};
use crate::dtype::{DType, Operations};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::shader::Shader;
use crate::tensor::Tensor;

/// Addresses from here on belong to planned temporaries: the addresses that a process reserves
/// end below.
pub(super) const PLANNED: u64 = 1 << 63;
/// Bits of an address within one temporary.
const ROOM: u32 = 48;

/// A program with what it binds.
pub struct Dispatch {
    /// Identity of the shader.
    pub key: Key,
    /// Makes the shader.
    pub shader: Box<dyn Fn() -> Shader>,
    /// The bindings, in the shader's order.
    pub bindings: SmallVec<[Binding; 8]>,
    /// Parameters, in the shader's order.
    pub params: Params,
    /// Workgroups.
    pub grid: Grid,
    /// Two for each product that is added.
    pub operations: Operations,
}

impl std::fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dispatch")
            .field("key", &self.key)
            .field("bindings", &self.bindings)
            .field("grid", &self.grid)
            .finish_non_exhaustive()
    }
}

impl Dispatch {
    /// Enqueues it; it has no temporaries.
    pub fn enqueue(self, device: &Device) -> Result<()> {
        self.enqueue_in(device, &Places::default())
    }

    /// Enqueues it with its temporaries in `memory`.
    pub(super) fn enqueue_in(self, device: &Device, memory: &Places) -> Result<()> {
        self.with_program(memory, |program, operations| device.enqueue_counted(program, operations))
    }

    /// Calls `f` with the program, whose temporaries lie in `memory`, and with its operations.
    fn with_program<R>(self, memory: &Places, f: impl FnOnce(&Program<'_>, Operations) -> R) -> R {
        let Self { key, shader, mut bindings, params, grid, operations } = self;
        for binding in &mut bindings {
            binding.address = memory.place(binding.address);
        }
        f(&Program { key, shader: &*shader, bindings, params, grid }, operations)
    }

    /// Calls `f` with the program as a compiler sees it: its bindings do not matter.
    fn compiled<R>(&self, f: impl FnOnce(&Program<'_>) -> R) -> R {
        f(&Program {
            key: self.key.clone(),
            shader: &*self.shader,
            bindings: self.bindings.clone(),
            params: self.params.clone(),
            grid: self.grid,
        })
    }
}

/// Temporary tensors that are planned.
#[derive(Debug, Default)]
pub(super) struct Temporaries {
    /// Bytes of each.
    bytes: SmallVec<[u64; 2]>,
    /// The number of tensors that the next step must not overwrite.
    held: usize,
}

impl Temporaries {
    /// A tensor, which lies at a multiple of 16 bytes.
    pub fn tensor(&mut self, dtype: DType, dims: &[usize]) -> Tensor {
        let address = PLANNED | (self.held as u64) << ROOM;
        let tensor = Tensor::new(dtype, dims, address);
        match self.bytes.get_mut(self.held) {
            Some(bytes) => *bytes = tensor.bytes().max(*bytes),
            None => self.bytes.push(tensor.bytes()),
        }
        self.held += 1;
        tensor
    }

    /// The number of tensors that are needed from here on.
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Later tensors take the memory of those from number `held` on.
    pub const fn hold(&mut self, held: usize) {
        self.held = held;
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes of each.
    #[cfg(test)]
    pub fn bytes(&self) -> &[u64] {
        &self.bytes
    }

    /// Allocates their memory.
    pub fn allocate(&self, ctx: &mut dyn OpContext) -> Result<Places> {
        self.allocate_by(&mut |words| Ok(ctx.temp(DType::I32, &[words])?.address))
    }

    /// The same, where `take` allocates a number of words and returns their address.
    pub fn allocate_by(&self, take: &mut dyn FnMut(usize) -> Result<u64>) -> Result<Places> {
        // Sizes are in words: an allocation of bytes is padded to whole words anyway.
        let words = self.bytes.iter().map(|bytes| bytes.div_ceil(4) as usize);
        words.map(take).collect::<Result<_>>().map(Places)
    }
}

/// Where temporaries lie.
#[derive(Debug, Default)]
pub(super) struct Places(SmallVec<[u64; 2]>);

impl Places {
    /// The address on the device of a planned one; every other address stays.
    pub fn place(&self, address: u64) -> u64 {
        if address < PLANNED {
            return address;
        }
        let (index, offset) = ((address - PLANNED) >> ROOM, address & ((1 << ROOM) - 1));
        self.0[index as usize] + offset
    }
}

/// Programs in order, and the temporaries between them.
#[derive(Debug, Default)]
pub(super) struct Programs {
    dispatches: SmallVec<[Dispatch; 1]>,
    pub temporaries: Temporaries,
}

impl From<Dispatch> for Programs {
    fn from(dispatch: Dispatch) -> Self {
        let mut programs = Self::default();
        programs.push(dispatch);
        programs
    }
}

impl Programs {
    /// Appends a program.
    pub fn push(&mut self, dispatch: Dispatch) {
        self.dispatches.push(dispatch);
    }

    /// The programs.
    #[cfg(test)]
    pub fn iter(&self) -> std::slice::Iter<'_, Dispatch> {
        self.dispatches.iter()
    }

    /// The dispatches of `device`, with `memory` for the temporaries. With `later`, shaders are
    /// compiled later, as by [`Device::gather`].
    pub fn gather(self, device: &Device, memory: &Places, later: bool) -> Result<Dispatches> {
        let mut dispatches = Dispatches::default();
        for dispatch in self.dispatches {
            dispatch.with_program(memory, |program, operations| {
                device.gather(&mut dispatches, program, operations, later)
            })?;
        }
        Ok(dispatches)
    }

    /// The same on a device other than the operands' own. `place` gives the operands' addresses
    /// there.
    pub fn gather_on(
        mut self,
        device: &Device,
        memory: &Places,
        place: &mut dyn FnMut(&Binding) -> Result<u64>,
    ) -> Result<Dispatches> {
        let bindings = self.dispatches.iter_mut().flat_map(|dispatch| &mut dispatch.bindings);
        for binding in bindings.filter(|binding| binding.address < PLANNED) {
            binding.address = place(binding)?;
        }
        self.gather(device, memory, false)
    }

    /// Whether all programs are compiled; the first call starts their compilation.
    pub fn is_ready(&self, device: &Device) -> Result<bool> {
        self.dispatches
            .iter()
            .map(|dispatch| dispatch.compiled(|program| device.is_ready(program)))
            .try_fold(true, |all, ready| Ok(ready? && all))
    }

    /// Compiles all programs, or waits until they are compiled.
    pub fn prepare(&self, device: &Device) -> Result<()> {
        self.dispatches.iter().try_for_each(|d| d.compiled(|program| device.prepare(program)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_keep_their_distance() {
        let memory = Places(smallvec::smallvec![1000, 5000]);
        assert_eq!(memory.place(77), 77);
        assert_eq!(memory.place(PLANNED + 8), 1008);
        assert_eq!(memory.place((PLANNED | 1 << ROOM) + 16), 5016);
    }
}
