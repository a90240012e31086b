//! TileGrad: the sum of all tiles. Graphs of today say it with a reshape and a sum.

use super::plan::{Style, groups};
use super::program::reduce;
use super::table::{COMPLEX_REDUCTIONS, REDUCTIONS, Reduction};
use crate::device::Device;
use crate::dtype::types::INDEX;
use crate::error::Result;
use crate::kernels::op::{OpContext, OpContextExt};
use crate::kernels::registry::Registry;
use crate::require;
use crate::tensor::Dims;

/// Adds the op.
pub fn register(r: &mut Registry) {
    let capabilities = *r.capabilities();
    for row in REDUCTIONS.iter().chain(COMPLEX_REDUCTIONS).filter(|row| row.op == "Sum") {
        let style = move |device: &Device| super::style(&capabilities, device);
        r.op("TileGrad").types("T", row.types).types("Tmultiples", INDEX).host(&["multiples"]).kernel(move |_| {
            Ok(move |ctx: &mut dyn OpContext| {
                let style = style(ctx.device());
                tile_grad(ctx, style, row)
            })
        });
    }
}

fn tile_grad(ctx: &mut dyn OpContext, style: Style, row: &'static Reduction) -> Result<()> {
    let x = ctx.input(0)?;
    let multiples = ctx.host_i64s(1)?;
    require!(
        multiples.len() == x.rank(),
        "Expected multiples argument to be a vector of length {} but got length {}",
        x.rank(),
        multiples.len()
    );
    let mut dims = Dims::new();
    let mut parts = Dims::new();
    for (axis, (&extent, &multiple)) in x.dims.iter().zip(&multiples).enumerate() {
        let multiple = usize::try_from(multiple).ok().filter(|m| *m > 0 && extent.is_multiple_of(*m));
        require!(multiple.is_some(), "input extent {extent} is no multiple of multiples[{axis}]");
        let multiple = multiple.unwrap_or(1);
        dims.push(extent / multiple);
        parts.extend([multiple, extent / multiple]);
    }
    if dims == x.dims {
        return ctx.forward_input(0, 0, &dims);
    }
    let y = ctx.output(0, x.dtype, &dims)?;
    let reduced: Vec<bool> = (0..parts.len()).map(|k| k % 2 == 0).collect();
    reduce(ctx, style, row, &x, &groups(&parts, &reduced), &y)
}
