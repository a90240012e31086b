//! What is done with the programs of a contraction.

use std::cell::Cell;

use crate::device::{Device, Program};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::tensor::Tensor;

/// What is done with a contraction's programs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work<'w> {
    /// They are enqueued.
    Enqueue,
    /// The same; the cell becomes true if they find no memory.
    Attempt(&'w Cell<bool>),
    /// They begin to be compiled; the cell becomes false if one is not yet.
    Compile(&'w Cell<bool>),
}

impl Work<'_> {
    pub(super) fn program(self, device: &Device, program: &Program<'_>) -> Result<()> {
        match self {
            Self::Enqueue | Self::Attempt(_) => device.enqueue(program),
            Self::Compile(ready) => {
                ready.set(device.is_ready(program)? && ready.get());
                Ok(())
            }
        }
    }

    /// Memory that the programs need. None is taken for those that do not run.
    pub(super) fn temp(
        self,
        ctx: &mut dyn OpContext,
        dtype: DType,
        dims: &[usize],
    ) -> Result<Tensor> {
        match self {
            Self::Enqueue => ctx.temp(dtype, dims),
            Self::Attempt(short) => ctx.temp(dtype, dims).inspect_err(|_| short.set(true)),
            Self::Compile(_) => Ok(Tensor::new(dtype, dims, 0)),
        }
    }
}
