//! Where: the coordinates of the elements that are not zero, in row-major order.
//!
//! Blocks count their nonzero elements, prefix sums over the counts tell where each block's
//! coordinates begin, and the blocks write them.

use smallvec::smallvec;

use super::scan::{exclusive, word};
use crate::device::{Binding, Grid, Key, Params, Program};
use crate::dtype::DType::{self, *};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::registry::{Registry, WAITS_FOR_SIZE};
use crate::require;
use crate::shader::{Field, Shader};

const TYPES: &[DType] = &[Bool, C128, C64, F64, F32, I64, I8, U8];
/// The most extents that a list of coordinates can have.
const MAX_RANK: usize = 8;
/// Invocations of a workgroup, each for 32 elements.
const INVOCATIONS: u32 = 64;
const BLOCK: usize = 32 * INVOCATIONS as usize;

/// Registers the op.
pub fn register(r: &mut Registry) {
    r.op("Where").types("T", TYPES).note(WAITS_FOR_SIZE).kernel(|_| Ok(nonzero));
}

/// Where. It waits for the device, since the number of rows is the number of elements found.
fn nonzero(ctx: &mut dyn OpContext) -> Result<()> {
    let x = ctx.input(0)?;
    let rank = x.rank();
    require!((1..=MAX_RANK).contains(&rank), "WhereOp : Unhandled input dimensions: {rank}");
    if x.is_empty() {
        ctx.output(0, I64, &[0, rank])?;
        return Ok(());
    }
    let n = ctx.device().check_extent(x.len())? as usize;
    let blocks = n.div_ceil(BLOCK);
    let totals = ctx.temp(U32, &[blocks])?;
    let starts = ctx.temp(U32, &[blocks + 1])?;
    ctx.device().enqueue(&Program {
        key: Key::new("sort selected count").dtype(x.dtype),
        shader: &|| count_shader(x.dtype),
        bindings: smallvec![(&x).into(), (&totals).into()],
        params: Params::new().u32(n).u32(blocks),
        grid: Grid::groups(blocks),
    })?;
    exclusive(ctx, &totals, &starts)?;
    let total = word(ctx, &starts, blocks)? as usize;
    let out = ctx.output(0, I64, &[total, rank])?;
    if total == 0 {
        return Ok(());
    }
    ctx.device().check_extent(total * rank)?;
    let mut dims = x.dims.to_vec();
    dims.resize(MAX_RANK, 1);
    ctx.device().enqueue(&Program {
        key: Key::new("sort selected coordinates").dtype(x.dtype),
        shader: &|| coordinates_shader(x.dtype),
        bindings: smallvec![(&x).into(), (&starts).into(), Binding::raw(&out, 8)],
        params: Params::new().u32(n).u32(blocks).u32(rank).list(&dims),
        grid: Grid::groups(blocks),
    })
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    TYPES.iter().flat_map(|t| [count_shader(*t), coordinates_shader(*t)]).collect()
}

fn count_shader(dtype: DType) -> Shader {
    let shader =
        Shader::new(format!("sort selected count {dtype}")).bind("x", dtype).bind("totals", U32);
    selected(
        shader.u32s(&["count", "blocks"]),
        dtype,
        include_str!("../../../shaders/sort/selected_count.wgsl"),
    )
}

fn coordinates_shader(dtype: DType) -> Shader {
    let shader = Shader::new(format!("sort selected coordinates {dtype}"))
        .bind("x", dtype)
        .bind("starts", U32)
        .bind_raw("out", "vec2<u32>", 8)
        .u32s(&["count", "blocks", "rank"])
        .param("dims", Field::Vec4s(MAX_RANK / 4));
    selected(shader, dtype, include_str!("../../../shaders/sort/selected_coordinates.wgsl"))
}

fn selected(shader: Shader, dtype: DType, main: &str) -> Shader {
    // NaN counts: it is not equal to zero, but drivers get `!=` wrong for it.
    let zero = match dtype {
        C64 | C128 => format!("all(load_x(first + k) == {}())", dtype.value()),
        _ => format!("load_x(first + k) == {}()", dtype.value()),
    };
    let flags = if dtype.size() == 1 {
        include_str!("../../../shaders/sort/selected_words.wgsl").to_owned()
    } else {
        include_str!("../../../shaders/sort/selected_elements.wgsl").replace("{{ZERO}}", &zero)
    };
    shader
        .workgroup([INVOCATIONS, 1, 1])
        .define("FLAGS", flags)
        .define("FINISH", main)
        .body(include_str!("../../../shaders/sort/selected.wgsl"))
}
