//! ScatterNd and similar ops: slices of a tensor by indices whose last extent is the number of
//! components.

use super::chains::{self, Fold};
use crate::error::Result;
use crate::kernels::gather::index::Indices;
use crate::kernels::movement::{host_shape, shape};
use crate::kernels::op::{Kernel, OpContext, VariableUpdate};
use crate::require;
use crate::tensor::Tensor;

/// Checks the shapes and folds `updates` into `dst`.
fn scatter(
    ctx: &mut dyn OpContext,
    fold: Fold,
    dst: &Tensor,
    indices: &Tensor,
    updates: &Tensor,
) -> Result<()> {
    let dims = &dst.dims;
    require!(!dims.is_empty(), "Output must be at least 1-D, got shape: {}", shape(dims));
    require!(
        indices.rank() > 0,
        "Indices shape must have rank at least one. Found:{}",
        shape(&indices.dims)
    );
    require!(
        updates.rank() > 0,
        "Updates shape must have rank at least one. Found:{}",
        shape(&updates.dims)
    );
    require!(
        !dst.is_empty() || (indices.is_empty() && updates.is_empty()) || updates.is_empty(),
        "Indices and updates specified for empty output.  indices shape: {}",
        shape(&indices.dims)
    );
    let batch = indices.rank() - 1;
    let depth = indices.dims[batch];
    require!(
        depth <= dims.len(),
        "The innermost dimension of indices must be at most the rank of the output: indices {}, \
         output {}",
        shape(&indices.dims),
        shape(dims)
    );
    require!(
        updates.rank() >= batch && updates.dims[..batch] == indices.dims[..batch],
        "Dimensions [0,{batch}) of indices[shape={}] must match dimensions [0,{batch}) of \
         updates[shape={}]",
        shape(&indices.dims),
        shape(&updates.dims)
    );
    require!(
        updates.dims[batch..] == dims[depth..],
        "Dimensions [{depth},{}) of input[shape={}] must match dimensions [{batch},{}) of \
         updates[shape={}]",
        dims.len(),
        shape(dims),
        updates.rank(),
        shape(&updates.dims)
    );
    chains::Scatter {
        fold,
        indices: &Indices::new(indices, &dims[..depth])?,
        count: indices.dims[..batch].iter().product(),
        updates,
        inner: dims[depth..].iter().product(),
    }
    .enqueue(ctx, dst)
}

/// ScatterNd: inputs indices (0), updates (1) and shape (2, host). Duplicates add up.
pub struct ScatterNd;

impl Kernel for ScatterNd {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let dims = host_shape(ctx, 2, "shape")?;
        let (indices, updates) = (ctx.input(0)?, ctx.input(1)?);
        let dst = ctx.output(0, updates.dtype, &dims)?;
        ctx.device().fill(dst.address, dst.bytes(), 0)?;
        scatter(ctx, Fold::Add, &dst, &indices, &updates)
    }
}

/// TensorScatter*: inputs tensor (0), indices (1) and updates (2).
pub struct TensorScatter {
    /// The effect of an update.
    pub fold: Fold,
}

impl Kernel for TensorScatter {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (tensor, indices, updates) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        let dst = ctx.forward_or_output(&[0], 0, tensor.dtype, &tensor.dims)?;
        if dst.address != tensor.address {
            ctx.device().copy(dst.address, tensor.address, tensor.bytes())?;
        }
        scatter(ctx, self.fold, &dst, &indices, &updates)
    }
}

/// ResourceScatterNd*: inputs the variable (0), indices (1) and updates (2).
pub struct ResourceScatterNd {
    /// The effect of an update.
    pub fold: Fold,
}

impl Kernel for ResourceScatterNd {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (indices, updates) = (ctx.input(1)?, ctx.input(2)?);
        ctx.update_variable(0, VariableUpdate::Sparse, &mut |ctx, _, variable| {
            scatter(ctx, self.fold, variable, &indices, &updates)
        })
    }
}
