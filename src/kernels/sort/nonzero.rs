//! Where: the coordinates of the elements that are not zero, in row-major order.
//!
//! Blocks count their nonzero elements, prefix sums over the counts tell where each block's
//! coordinates begin, and the blocks write them.

use super::scan::{exclusive, word};
use crate::device::{Binding, Grid, declare_program};
use crate::dtype::DType::{self, *};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::kernels::registry::{Registry, WAITS_FOR_SIZE};
use crate::require;
use crate::shader::{Raw, Shader};

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
    CountSelected { x: (&x).into(), totals: (&totals).into(), count: n, blocks }.enqueue(
        ctx.device(),
        &CountSelected::of(x.dtype),
        Grid::groups(blocks),
    )?;
    exclusive(ctx, &totals, &starts)?;
    let total = word(ctx, &starts, blocks)? as usize;
    let out = ctx.output(0, I64, &[total, rank])?;
    if total == 0 {
        return Ok(());
    }
    ctx.device().check_extent(total * rank)?;
    let mut dims = [1; MAX_RANK];
    dims[..rank].copy_from_slice(&x.dims);
    SelectedCoordinates {
        x: (&x).into(),
        starts: (&starts).into(),
        out: Binding::raw(&out, 8),
        count: n,
        blocks,
        rank,
        dims,
    }
    .enqueue(ctx.device(), &SelectedCoordinates::of(x.dtype), Grid::groups(blocks))
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    TYPES
        .iter()
        .flat_map(|t| [CountSelected::shader(*t), SelectedCoordinates::shader(*t)])
        .collect()
}

declare_program! {
    /// Counts the elements of each block that are not zero.
    struct CountSelected = "sort selected count"(dtype: DType);
    bindings { x: dtype, totals: U32 }
    params { count: usize, blocks: usize }
}

impl CountSelected {
    fn shader(dtype: DType) -> Shader {
        selected(
            Self::declare(format!("sort selected count {dtype}"), dtype),
            dtype,
            include_str!("../../../shaders/sort/selected_count.wgsl"),
        )
    }
}

declare_program! {
    /// The coordinates of the elements that are not zero.
    struct SelectedCoordinates = "sort selected coordinates"(dtype: DType);
    bindings { x: dtype, starts: U32, out: Raw("vec2<u32>", 8) }
    params { count: usize, blocks: usize, rank: usize, dims: [usize; MAX_RANK] }
}

impl SelectedCoordinates {
    fn shader(dtype: DType) -> Shader {
        let shader = Self::declare(format!("sort selected coordinates {dtype}"), dtype);
        selected(shader, dtype, include_str!("../../../shaders/sort/selected_coordinates.wgsl"))
    }
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
