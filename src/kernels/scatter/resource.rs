//! ResourceScatter*: rows of a variable by an index tensor of any shape.

use super::chains::{self, Fold};
use crate::error::Result;
use crate::kernels::gather::index::Indices;
use crate::kernels::movement::shape;
use crate::kernels::op::{Kernel, OpContext, VariableUpdate};
use crate::require;
use crate::tensor::{Dims, Tensor};

/// Inputs: the variable (0), indices (1) and updates (2).
pub struct Scatter {
    /// The effect of an update.
    pub fold: Fold,
}

impl Kernel for Scatter {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (indices, updates) = (ctx.input(1)?, ctx.input(2)?);
        ctx.update_variable(0, VariableUpdate::Sparse, &mut |ctx, _, variable| {
            check(variable, &indices, &updates)?;
            chains::Scatter {
                fold: self.fold,
                indices: &Indices::new(&indices, &variable.dims[..1])?,
                count: indices.len(),
                updates: &updates,
                inner: variable.dims[1..].iter().product(),
            }
            .enqueue(ctx, variable)
        })
    }
}

fn check(variable: &Tensor, indices: &Tensor, updates: &Tensor) -> Result<()> {
    require!(
        variable.rank() > 0,
        "params must be at least 1-D, got shape {}",
        shape(&variable.dims)
    );
    let mut want = Dims::from_slice(&indices.dims);
    want.extend_from_slice(&variable.dims[1..]);
    require!(
        updates.dims.is_empty() || updates.dims == want,
        "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got \
         updates.shape {}, indices.shape {}, params.shape {}",
        shape(&updates.dims),
        shape(&indices.dims),
        shape(&variable.dims)
    );
    require!(
        updates.dtype == variable.dtype,
        "updates are {}, the variable is {}",
        updates.dtype,
        variable.dtype
    );
    Ok(())
}
