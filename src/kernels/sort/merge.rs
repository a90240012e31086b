//! Sorting many rows at once on software adapters: an invocation merges the runs of a row alone,
//! without barriers, while others have theirs.

use std::fmt::Write;

use smallvec::smallvec;

use super::keys::Kind;
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::DType::U32;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::shader::Shader;
use crate::tensor::Tensor;

/// Elements that are sorted in registers.
const RUN: usize = 16;
/// Rows below which too few invocations would work.
const LEAST_ROWS: usize = 32;
/// The longest row, whose invocation stays within [`crate::device::Profile::loop_limit`].
const LONGEST: usize = 8192;
/// Invocations of a workgroup: a subgroup of a software adapter.
const INVOCATIONS: u32 = 8;
/// Bytes of scratch memory, in which as many rows as fit are sorted at once.
const SCRATCH: usize = 16 << 20;

/// Whether [`sort_rows`] is for this device and these rows.
pub fn suits(device: &Device, x: &Tensor) -> bool {
    let (rows, n) = (x.dims[0], x.dims[1]);
    device.profile().is_software()
        && !Kind::of(x.dtype).is_wide()
        && rows >= LEAST_ROWS
        && n <= LONGEST
}

/// Writes the positions of the first `k` of each row of the matrix `x` into the uint32 tensor
/// `out`.
pub fn sort_rows(
    ctx: &mut dyn OpContext,
    x: &Tensor,
    k: usize,
    descending: bool,
    out: &Tensor,
) -> Result<()> {
    let (rows, n) = (x.dims[0], x.dims[1]);
    let size = n.next_multiple_of(RUN);
    // Rows begin an odd number of 64 bytes apart: what lies a multiple of 4 KiB apart falls into
    // few sets of a cache.
    let stride = size.next_multiple_of(16) + 8;
    let at_once = (SCRATCH / (16 * stride)).clamp(1, rows);
    let scratch = ctx.temp(U32, &[2 * at_once * stride, 2])?;
    // The length of a run before the last merge.
    let mut ends = RUN;
    while 4 * ends < size {
        ends *= 4;
    }
    let kind = Kind::of(x.dtype);
    for first in (0..rows).step_by(at_once) {
        let count = at_once.min(rows - first);
        ctx.device().enqueue(&Program {
            key: Key::new("sort merge rows").number(kind.key()),
            shader: &|| shader(kind),
            bindings: smallvec![kind.binding(x), Binding::raw(&scratch, 8), out.into()],
            params: Params::new()
                .u32(count)
                .u32(first)
                .u32(n)
                .u32(size)
                .u32(stride)
                .u32(ends)
                .u32(k)
                .u32(if descending { u32::MAX } else { 0 }),
            grid: Grid::linear(count, INVOCATIONS),
        })?;
    }
    Ok(())
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    Kind::all().into_iter().filter(|kind| !kind.is_wide()).map(shader).collect()
}

fn shader(kind: Kind) -> Shader {
    let mut begin = String::new();
    let mut advance = String::new();
    for i in 0..4 {
        let _ = write!(
            begin,
            "    at[{i}] = base + first + {i}u * run;\n    ends[{i}] = base + min(first + {}u * \
             run, p.size);\n    heads[{i}] = head(at[{i}], ends[{i}]);\n",
            i + 1
        );
        let _ = write!(
            advance,
            "    heads[{i}] = select(heads[{i}], successor, won_{i});\n    at[{i}] = \
             select(at[{i}], place, won_{i});\n"
        );
    }
    let mut sort = String::new();
    for i in 0..RUN {
        let _ = writeln!(sort, "        var e{i} = candidate(row, j + {i}u);");
    }
    for (a, b) in network(RUN) {
        let _ = writeln!(sort, "        order(&e{a}, &e{b});");
    }
    for i in 0..RUN {
        let _ = writeln!(sort, "        scratch[p.off_scratch + base + j + {i}u] = e{i};");
    }
    kind.declare(Shader::new(format!("sort merge rows {kind:?}")))
        .bind_raw("scratch", "vec2<u32>", 8)
        .bind("kept", U32)
        .u32s(&["rows", "first", "n", "size", "stride", "ends", "keep", "mask"])
        .workgroup([INVOCATIONS, 1, 1])
        .define("BEGIN", begin)
        .define("ADVANCE", advance)
        .define("SORT", sort)
        .body(include_str!("../../../shaders/sort/merge_rows.wgsl"))
}

/// Batcher's odd-even merge sort of a power of two elements: the pairs to compare, in order.
fn network(n: usize) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    let mut run = 1;
    while run < n {
        let mut step = run;
        while step > 0 {
            for j in (step % run..n - step).step_by(2 * step) {
                for i in 0..step.min(n - j - step) {
                    if (i + j) / (2 * run) == (i + j + step) / (2 * run) {
                        pairs.push((i + j, i + j + step));
                    }
                }
            }
            step /= 2;
        }
        run *= 2;
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_sorts_zeros_and_ones() {
        let pairs = network(RUN);
        assert_eq!(pairs.len(), 63);
        for bits in 0u32..1 << RUN {
            let mut values: Vec<u32> = (0..RUN).map(|i| bits >> i & 1).collect();
            for &(a, b) in &pairs {
                if values[a] > values[b] {
                    values.swap(a, b);
                }
            }
            assert!(values.is_sorted(), "{bits:b}");
        }
    }
}
