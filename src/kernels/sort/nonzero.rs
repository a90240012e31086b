//! Where: the coordinates of the elements that are not zero, in row-major order.

use super::scan::{MAX_RANK, Selected};
use crate::dtype::DType::I64;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::require;

/// Where. Waits for the device, for the number of rows is the number of elements found.
pub fn nonzero(ctx: &mut dyn OpContext) -> Result<()> {
    let x = ctx.input(0)?;
    let rank = x.rank();
    require!((1..=MAX_RANK).contains(&rank), "WhereOp : Unhandled input dimensions: {rank}");
    if x.is_empty() {
        ctx.output(0, I64, &[0, rank])?;
        return Ok(());
    }
    let selected = Selected::count(ctx, &x)?;
    let out = ctx.output(0, I64, &[selected.total, rank])?;
    if selected.total == 0 {
        return Ok(());
    }
    selected.coordinates(ctx, &out)
}
