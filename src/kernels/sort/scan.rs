//! Device-wide exclusive prefix sums and, on top of them, the compaction of what a condition selects.
//!
//! A block of [`BLOCK`] elements is scanned by one workgroup. The blocks' totals are scanned by the same programs (recursively) and
//! start the second pass, so any length takes a handful of dispatches and no workgroup waits for another.

use smallvec::smallvec;

use crate::device::{Binding, Grid, Key, Params, Program};
use crate::dtype::DType::{self, *};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::shader::{Field, Shader};
use crate::tensor::Tensor;

/// Elements that one workgroup scans.
const BLOCK: usize = 1024;
/// Extents that a list of coordinates can have.
pub const MAX_RANK: usize = 8;

/// Prefix sums of the uint32 tensor `counts`: `out[i]` is the sum of all counts before `i`. `out` is uint32 and has one element more, for
/// the total.
pub fn exclusive(ctx: &mut dyn OpContext, counts: &Tensor, out: &Tensor) -> Result<()> {
    let n = counts.len();
    debug_assert_eq!((counts.dtype, out.dtype, out.len()), (U32, U32, n + 1));
    let starts = starts(ctx, counts)?;
    let blocks = n.div_ceil(BLOCK).max(1);
    ctx.device().enqueue(&Program {
        key: Key::new("sort scan"),
        shader: &scan_shader,
        bindings: smallvec![counts.into(), starts.as_ref().unwrap_or(out).into(), out.into()],
        params: Params::new().u32(n).u32(blocks),
        grid: Grid::groups(blocks),
    })
}

/// Where each block of `x` starts among the selected, with the total as last element; None for a single block.
fn starts(ctx: &mut dyn OpContext, x: &Tensor) -> Result<Option<Tensor>> {
    let n = ctx.device().check_extent(x.len())? as usize;
    let blocks = n.div_ceil(BLOCK);
    if blocks <= 1 {
        return Ok(None);
    }
    let totals = ctx.temp(U32, &[blocks])?;
    let starts = ctx.temp(U32, &[blocks + 1])?;
    enqueue_totals(ctx, x, &totals, blocks)?;
    exclusive(ctx, &totals, &starts)?;
    Ok(Some(starts))
}

fn enqueue_totals(ctx: &mut dyn OpContext, x: &Tensor, totals: &Tensor, blocks: usize) -> Result<()> {
    ctx.device().enqueue(&Program {
        key: Key::new("sort totals").dtype(x.dtype),
        shader: &|| totals_shader(x.dtype),
        bindings: smallvec![x.into(), totals.into()],
        params: Params::new().u32(x.len()).u32(blocks),
        grid: Grid::groups(blocks),
    })
}

/// The elements of a tensor that are not zero, counted; a uint32 tensor's elements count as they are.
#[derive(Debug)]
pub struct Selected<'a> {
    x: &'a Tensor,
    starts: Tensor,
    /// How many there are.
    pub total: usize,
}

impl<'a> Selected<'a> {
    /// Counts the non-zero elements of `x`, which must not be empty. Waits for the device: the number is the size of an output.
    pub fn count(ctx: &mut dyn OpContext, x: &'a Tensor) -> Result<Self> {
        let blocks = x.len().div_ceil(BLOCK);
        let starts = match starts(ctx, x)? {
            Some(starts) => starts,
            None => {
                let total = ctx.temp(U32, &[2])?;
                let last = Tensor::new(U32, &[1], total.address + 4);
                ctx.device().fill(total.address, 4, 0)?;
                enqueue_totals(ctx, x, &last, 1)?;
                total
            }
        };
        let total = word(ctx, &starts, blocks)? as usize;
        Ok(Self { x, starts, total })
    }

    /// Writes the coordinates of the selected elements, in order, as the rows of the int64 matrix `out`.
    pub fn coordinates(&self, ctx: &mut dyn OpContext, out: &Tensor) -> Result<()> {
        let x = self.x;
        let blocks = x.len().div_ceil(BLOCK);
        ctx.device().check_extent(2 * self.total * x.rank())?;
        let mut dims = x.dims.to_vec();
        dims.resize(MAX_RANK, 1);
        ctx.device().enqueue(&Program {
            key: Key::new("sort coordinates").dtype(x.dtype),
            shader: &|| coordinates_shader(x.dtype),
            bindings: smallvec![x.into(), (&self.starts).into(), Binding::raw(out, 4)],
            params: Params::new().u32(x.len()).u32(blocks).u32(x.rank()).list(&dims),
            grid: Grid::groups(blocks),
        })
    }
}

/// Element `i` of a uint32 tensor, for the few ops whose output's size is known to the device alone. Waits for the device.
pub fn word(ctx: &dyn OpContext, x: &Tensor, i: usize) -> Result<u32> {
    let mut bytes = [0; 4];
    ctx.device().download(x.address + 4 * i as u64, &mut bytes)?;
    Ok(u32::from_ne_bytes(bytes))
}

/// Types that [`Selected`] takes, for the list of shaders.
pub const SELECTED: &[DType] = &[Bool, C128, C64, F64, F32, I64, I8, U8];

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let mut all = vec![scan_shader(), totals_shader(U32)];
    all.extend(SELECTED.iter().flat_map(|t| [totals_shader(*t), coordinates_shader(*t)]));
    all
}

fn count_text(dtype: DType) -> String {
    match dtype {
        U32 => "load_x(i)".to_owned(),
        Bool => "select(0u, 1u, load_x(i))".to_owned(),
        // NaN counts: it is not equal to zero, and drivers get `!=` wrong for it.
        C64 | C128 => format!("select(1u, 0u, all(load_x(i) == {}()))", dtype.value()),
        _ => format!("select(1u, 0u, load_x(i) == {}())", dtype.value()),
    }
}

fn totals_shader(dtype: DType) -> Shader {
    Shader::new(format!("sort totals {dtype}"))
        .bind("x", dtype)
        .bind("totals", U32)
        .u32s(&["count", "blocks"])
        .define("COUNT", count_text(dtype))
        .define("STORE", "")
        .define(
            "FINISH",
            "    if live && local_index == WORKGROUP - 1u {\n        store_totals(block, sums[local_index]);\n    }",
        )
        .body(include_str!("../../../shaders/sort/scan.wgsl"))
}

/// The end of a second pass: hands each element with its start to `store`.
const APPLY: &str = "    var at = sums[local_index] - own;
    if live && p.blocks > 1u {
        at += load_starts(block);
    }
    for (var k = 0u; k < ITEMS; k += 1u) {
        if live && first + k < p.count {
            store(first + k, at, counts[k]);
            at += counts[k];
        }
    }";

fn scan_shader() -> Shader {
    Shader::new("sort scan")
        .bind("x", U32)
        .bind("starts", U32)
        .bind("out", U32)
        .u32s(&["count", "blocks"])
        .define("COUNT", count_text(U32))
        .define(
            "STORE",
            "fn store(i: u32, at: u32, n: u32) {\n    store_out(i, at);\n    if i + 1u == p.count {\n        \
             store_out(p.count, at + n);\n    }\n}",
        )
        .define("FINISH", APPLY)
        .body(include_str!("../../../shaders/sort/scan.wgsl"))
}

fn coordinates_shader(dtype: DType) -> Shader {
    Shader::new(format!("sort coordinates {dtype}"))
        .bind("x", dtype)
        .bind("starts", U32)
        .bind_raw("out", "u32", 4)
        .u32s(&["count", "blocks", "rank"])
        .param("dims", Field::Vec4s(MAX_RANK / 4))
        .define("COUNT", count_text(dtype))
        .define(
            "STORE",
            // int64 as two words: coordinates are below 2^32.
            "fn store(i: u32, at: u32, n: u32) {\n    if n == 0u {\n        return;\n    }\n    var rest = i;\n    \
             for (var k = 0u; k < p.rank; k += 1u) {\n        let d = p.rank - 1u - k;\n        \
             let extent = p.dims[d >> 2u][d & 3u];\n        let word = p.off_out + 2u * (at * p.rank + d);\n        \
             out[word] = rest % extent;\n        out[word + 1u] = 0u;\n        rest /= extent;\n    }\n}",
        )
        .define("FINISH", APPLY)
        .body(include_str!("../../../shaders/sort/scan.wgsl"))
}
