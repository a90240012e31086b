//! Device-wide exclusive prefix sums.
//!
//! A block of [`BLOCK`] elements is scanned by one workgroup. The blocks' totals are scanned by the
//! same programs (recursively) and start the second pass, so any length takes a handful of
//! dispatches and no workgroup waits for another.

use crate::device::{Grid, declare_program};
use crate::dtype::DType::U32;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::shader::Shader;
use crate::tensor::Tensor;

/// Invocations of a workgroup, each for 16 elements.
const INVOCATIONS: u32 = 64;
/// Elements that one workgroup scans.
const BLOCK: usize = 16 * INVOCATIONS as usize;

/// Computes prefix sums of the uint32 tensor `counts`: `out[i]` is the sum of all counts before
/// `i`. `out` is uint32 and has one element more, for the total.
pub fn exclusive(ctx: &mut dyn OpContext, counts: &Tensor, out: &Tensor) -> Result<()> {
    let n = counts.len();
    debug_assert_eq!((counts.dtype, out.dtype, out.len()), (U32, U32, n + 1));
    let starts = starts(ctx, counts)?;
    let blocks = n.div_ceil(BLOCK).max(1);
    Scan {
        x: counts.into(),
        starts: starts.as_ref().unwrap_or(out).into(),
        out: out.into(),
        count: n,
        blocks,
    }
    .enqueue(ctx.device(), &Scan::of(), Grid::groups(blocks))
}

/// The sum of all elements before each block of `x`; None for a single block.
fn starts(ctx: &mut dyn OpContext, x: &Tensor) -> Result<Option<Tensor>> {
    let n = ctx.device().check_extent(x.len())? as usize;
    let blocks = n.div_ceil(BLOCK);
    if blocks <= 1 {
        return Ok(None);
    }
    let totals = ctx.temp(U32, &[blocks])?;
    let starts = ctx.temp(U32, &[blocks + 1])?;
    Totals { x: x.into(), totals: (&totals).into(), count: n, blocks }.enqueue(
        ctx.device(),
        &Totals::of(),
        Grid::groups(blocks),
    )?;
    exclusive(ctx, &totals, &starts)?;
    Ok(Some(starts))
}

/// Element `i` of a uint32 tensor, for the few ops whose output's size only the device knows. Waits
/// for the device.
pub fn word(ctx: &dyn OpContext, x: &Tensor, i: usize) -> Result<u32> {
    let mut bytes = [0; 4];
    ctx.device().download(x.address + 4 * i as u64, &mut bytes)?;
    Ok(u32::from_ne_bytes(bytes))
}

/// One element of each of some uint32 tensors, named by its index. The device gathers them, so that
/// the host waits only once.
pub fn words<const N: usize>(
    ctx: &mut dyn OpContext,
    elements: [(&Tensor, usize); N],
) -> Result<[u32; N]> {
    let gathered = ctx.temp(U32, &[N])?;
    for (n, (x, i)) in elements.into_iter().enumerate() {
        let word = gathered.address + 4 * n as u64;
        ctx.device().copy(word, x.address + 4 * i as u64, 4)?;
    }
    let mut words = [0; N];
    ctx.device().download(gathered.address, bytemuck::cast_slice_mut(&mut words))?;
    Ok(words)
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    vec![Scan::shader(), Totals::shader()]
}

declare_program! {
    /// The sum of each block.
    struct Totals = "sort totals"();
    bindings { x: U32, totals: U32 }
    params { count: usize, blocks: usize }
    shader "sort totals" =>
        .workgroup([INVOCATIONS, 1, 1])
        .define(
            "FINISH",
            "    if block < p.blocks && local_index == WORKGROUP - 1u {\n        \
         store_totals(block, sum);\n    }",
        )
        .body(include_str!("../../../shaders/sort/scan.wgsl"))
}

declare_program! {
    /// The exclusive prefix sums of blocks that start at `starts`.
    struct Scan = "sort scan"();
    bindings { x: U32, starts: U32, out: U32 }
    params { count: usize, blocks: usize }
    shader "sort scan" =>
        .workgroup([INVOCATIONS, 1, 1])
        .define(
            "FINISH",
            "    var at = sum - own;
    if p.blocks > 1u {
        at += load_starts(block);
    }
    for (var i = first; i < end; i += 1u) {
        let n = load_x(i);
        store_out(i, at);
        at += n;
        if i + 1u == p.count {
        store_out(p.count, at);
        }
    }",
        )
        .body(include_str!("../../../shaders/sort/scan.wgsl"))
}
