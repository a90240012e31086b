//! The states of a network, before its first step or after its last, or their gradients.

use super::extents::Extents;
use crate::device::Device;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::rnn::values::{Output, clear, wide};
use crate::kernels::windows::part;
use crate::tensor::Tensor;

/// The states, in the computation's type.
#[derive(Debug)]
pub struct States {
    /// The states of the units, which steps walk over: the units' values and, for an LSTM, the
    /// cells behind them. If outputs are projected, zeros stand for the units' values.
    pub units: Tensor,
    /// The outputs, if they are projected.
    pub projected: Option<Tensor>,
}

impl States {
    /// Reads them from two inputs; the second one is the cells, if there are any.
    pub fn of(ctx: &mut dyn OpContext, extents: &Extents, [h, c]: [usize; 2]) -> Result<Self> {
        let has_cells = extents.layout.model.mode.has_cells();
        let h = ctx.input(h)?;
        let h = wide(ctx, &h)?;
        let len: usize = extents.cells().iter().product();
        let units = ctx.temp(h.dtype, &[1 + usize::from(has_cells), len])?;
        let projects = extents.layout.projects();
        if projects {
            clear(ctx, &part(&units, 0, len))?;
        } else {
            ctx.device().copy(units.address, h.address, h.bytes())?;
        }
        if has_cells {
            let c = ctx.input(c)?;
            let c = wide(ctx, &c)?;
            ctx.device().copy(part(&units, len, len).address, c.address, c.bytes())?;
        }
        Ok(Self { units, projected: projects.then_some(h) })
    }

    /// Copies the states.
    pub fn copy_to(&self, device: &Device, to: &Self) -> Result<()> {
        device.copy(to.units.address, self.units.address, self.units.bytes())?;
        match (&self.projected, &to.projected) {
            (Some(from), Some(to)) => device.copy(to.address, from.address, from.bytes()),
            _ => Ok(()),
        }
    }

    /// Writes the states to outputs. Projected outputs are there already, but not rounded yet.
    pub fn give(&self, ctx: &mut dyn OpContext, h: &Output, c: Option<&Output>) -> Result<()> {
        match self.projected {
            Some(_) => h.finish(ctx)?,
            None => h.take(ctx, &self.units, 0)?,
        }
        c.map_or(Ok(()), |c| c.take(ctx, &self.units, self.units.len() / 2))
    }
}
