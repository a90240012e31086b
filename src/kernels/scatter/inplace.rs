//! InplaceUpdate, InplaceAdd and InplaceSub: inputs x (0), indices (1) and one row for each index
//! (2). Indices count modulo the number of rows.

use super::chains::{self, Fold};
use crate::device::{Grid, declare_program};
use crate::dtype::DType::I32;
use crate::error::Result;
use crate::kernels::gather::index::Indices;
use crate::kernels::movement::shape;
use crate::kernels::op::{Kernel, OpContext};
use crate::require;
use crate::shader::WORKGROUP;
use crate::tensor::Tensor;

/// The op.
pub struct Inplace {
    /// The effect of an update.
    pub fold: Fold,
}

impl Kernel for Inplace {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (x, i, v) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        check(&x, &i, &v)?;
        let y = ctx.forward_or_output(&[0], 0, x.dtype, &x.dims)?;
        if y.is_empty() {
            return Ok(());
        }
        if y.address != x.address {
            ctx.device().copy(y.address, x.address, x.bytes())?;
        }
        if i.is_empty() {
            return Ok(());
        }
        let rows = ctx.temp(I32, &[i.len()])?;
        ctx.device().check_extent(i.len())?;
        WrapRows { index: (&i).into(), rows: (&rows).into(), count: i.len(), extent: x.dims[0] }
            .enqueue(ctx.device(), &WrapRows::of(), Grid::linear(i.len(), WORKGROUP))?;
        chains::Scatter {
            fold: self.fold,
            indices: &Indices::new(&rows, &x.dims[..1])?,
            count: i.len(),
            updates: &v,
            inner: x.dims[1..].iter().product(),
        }
        .enqueue(ctx, &y)
    }
}

fn check(x: &Tensor, i: &Tensor, v: &Tensor) -> Result<()> {
    let shapes = || format!("{} vs. {}", shape(&x.dims), shape(&v.dims));
    require!(i.rank() == 1, "i must be a vector. {}", shape(&i.dims));
    require!(x.rank() == v.rank(), "x and v shape doesn't match (ranks differ): {}", shapes());
    require!(x.rank() > 0, "x must have at least one dimension");
    for d in 1..x.rank() {
        require!(x.dims[d] == v.dims[d], "x and v shape doesn't match at index {d} : {}", shapes());
    }
    require!(
        i.dims[0] == v.dims[0],
        "i and x shape doesn't match at index 0: {} vs. {}",
        shape(&i.dims),
        shape(&v.dims)
    );
    Ok(())
}

declare_program! {
    /// Brings indices into range.
    pub struct WrapRows = "wrap rows"();
    bindings { index: I32, rows: I32 }
    params { count: usize, extent: usize }
    shader "wrap rows" => .body(include_str!("../../../shaders/scatter/wrap.wgsl"))
}
