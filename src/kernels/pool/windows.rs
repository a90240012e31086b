//! Pooling of tensors beyond one binding, see [`crate::kernels::contract::images`].

use smallvec::SmallVec;

use super::program::vec4s;
use super::program::{Input, Pool};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::contract::geometry::Geometry;
use crate::kernels::contract::images::{Side, Window};
use crate::kernels::op::OpContext;
use crate::kernels::windows::{Scratch, limit, part, too_large, write};
use crate::tensor::Tensor;

/// Enqueues `pool`, in windows if it must be cut. `per_image` is the number of elements of an image
/// if indices count within images, else 0.
pub(super) fn enqueue(
    ctx: &mut dyn OpContext,
    pool: &'static Pool,
    g: &Geometry,
    inputs: &[Input<'_>],
    result: &Tensor,
    per_image: usize,
) -> Result<()> {
    let limit = limit(ctx.device().capabilities());
    // Bytes of an element of the pooled tensor, and of the result.
    let (mut from, mut to) = (0, 0);
    for (name, t) in inputs {
        let bytes = if Pool::is_pooled(name) { &mut from } else { &mut to };
        *bytes = t.dtype.size().max(*bytes);
    }
    let is_long = pool.is_long(&ctx.device().profile(), g, result.dtype);
    let bytes = if pool.is_gradient() { &mut from } else { &mut to };
    *bytes = pool.widest(result.dtype, is_long).max(*bytes);
    if is_long && pool.searches() {
        // Indices of the elements that were selected from windows.
        to = to.max(DType::I64.size());
    }
    let fits =
        |g: &Geometry| (g.inputs() * from) as u64 <= limit && (g.outputs() * to) as u64 <= limit;
    if fits(g) {
        return whole(ctx, pool, g, inputs, result, (per_image, 0));
    }
    let side = if pool.is_gradient() { Side::Surrounded } else { Side::Output };
    let Some(windows) = g.windows(side, true, &fits) else {
        return Err(too_large(
            ctx.device().capabilities(),
            "the smallest part of an image that pooling can do by itself",
        ));
    };
    let mut scratch = Scratch::new(ctx);
    for Window { geometry: g, input, output, own } in windows {
        let cut = |name: &str, t: &Tensor| {
            if Pool::is_pooled(name) {
                part(t, input, g.inputs())
            } else {
                part(t, output, g.outputs())
            }
        };
        let parts: SmallVec<[_; 3]> =
            inputs.iter().map(|(name, t)| (*name, cut(name, t))).collect();
        let parts: SmallVec<[Input<'_>; 3]> = parts.iter().map(|(name, t)| (*name, t)).collect();
        let numbers = (per_image, if per_image == 0 { input } else { input % per_image });
        let ctx = scratch.window();
        if !pool.is_gradient() {
            let y = part(result, output, g.outputs());
            write(ctx, &y, |ctx, y| whole(ctx, pool, &g, &parts, y, numbers))?;
        } else if own == (0, g.inputs()) {
            let dx = part(result, input, g.inputs());
            write(ctx, &dx, |ctx, dx| whole(ctx, pool, &g, &parts, dx, numbers))?;
        } else {
            // Rows that only surround the window's own rows are left out.
            let all = ctx.temp(result.dtype, &[g.inputs()])?;
            whole(ctx, pool, &g, &parts, &all, numbers)?;
            let (from, to) = (part(&all, own.0, own.1), part(result, input + own.0, own.1));
            ctx.device().copy(to.address, from.address, to.bytes())?;
        }
    }
    Ok(())
}

fn whole(
    ctx: &mut dyn OpContext,
    pool: &'static Pool,
    g: &Geometry,
    inputs: &[Input<'_>],
    result: &Tensor,
    numbers: (usize, usize),
) -> Result<()> {
    if vec4s::enqueue(ctx, pool, g, inputs, result)? {
        return Ok(());
    }
    pool.enqueue(ctx, g, inputs, result, numbers)
}
