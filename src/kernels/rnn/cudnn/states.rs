//! The states of a network, before its first step or after its last, or their gradients.

use super::extents::Extents;
use crate::device::Device;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::rnn::values::{Output, clear, wide};
use crate::kernels::windows::part;
use crate::tensor::Tensor;

/// In the type that is computed in.
#[derive(Debug)]
pub struct States {
    /// Those of the units, which steps walk over: what they give and, of an LSTM, the cells behind
    /// it. Where outputs are projected, zeros stand for what the units give.
    pub units: Tensor,
    /// The outputs, if they are projected.
    pub projected: Option<Tensor>,
}

impl States {
    /// From two inputs, the second of which is the cells, if there are any.
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

    /// Copies them.
    pub fn copy_to(&self, device: &Device, to: &Self) -> Result<()> {
        device.copy(to.units.address, self.units.address, self.units.bytes())?;
        match (&self.projected, &to.projected) {
            (Some(from), Some(to)) => device.copy(to.address, from.address, from.bytes()),
            _ => Ok(()),
        }
    }

    /// Gives them to outputs. Those that are projected are there already, but not rounded.
    pub fn give(&self, ctx: &mut dyn OpContext, h: &Output, c: Option<&Output>) -> Result<()> {
        match self.projected {
            Some(_) => h.finish(ctx)?,
            None => h.take(ctx, &self.units, 0)?,
        }
        c.map_or(Ok(()), |c| c.take(ctx, &self.units, self.units.len() / 2))
    }
}
