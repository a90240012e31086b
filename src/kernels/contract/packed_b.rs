//! Panels: a copy of `b` in which the columns that a subgroup computes lie next to each other.
//!
//! A software adapter's loads go through the processor's caches. Where rows of `b` are a multiple
//! of a page apart, the lines that a tile reads fall into few sets of them and drive each other
//! out; in packed B they follow each other. One copy of `b` is cheap where many rows read it.

use smallvec::smallvec;

use super::element::computed;
use super::text::vec4s_of;
use super::tile::{Memory, SUBGROUP, Tile};
use super::work::Work;
use super::{Contraction, Lanes, Lines};
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::DType;
use crate::error::Result;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::Tensor;

/// Columns of a panel: four for each lane.
pub(super) const COLUMNS: usize = 4 * SUBGROUP as usize;
/// Rows of a page, from where on they drive each other out.
const PAGE: usize = 4096;
/// Fewest rows of the result and steps of the contracted index for which it is worth a dispatch.
const LEAST: usize = 256;

/// Elements of the packed copy.
pub(super) fn elements(c: &Contraction<'_>) -> usize {
    c.outer * c.inner * c.n.next_multiple_of(COLUMNS)
}

/// Whether a contraction should read a packed copy, of at most `most` elements, instead of its
/// operand.
pub(super) fn worthwhile(c: &Contraction<'_>, tile: &Tile, lanes: Lanes, most: usize) -> bool {
    let stride = match lanes {
        Lanes::Edge => c.b_step,
        Lanes::Depth => c.b_column,
        Lanes::One => return false,
    };
    tile.memory == Memory::Subgroup
        && c.batch.len() == 1
        && !matches!(c.lines, Lines::Planar { .. })
        && c.n.is_multiple_of(4)
        && (stride * c.b.dtype.size()).is_multiple_of(PAGE)
        && c.m >= LEAST
        && c.outer * c.inner >= LEAST
        && elements(c) <= most
}

/// The text: operands by columns are copied four elements at a time, those by depth in squares of
/// four by four.
pub(super) fn shader(dtype: DType, lanes: Lanes) -> Shader {
    let text = match lanes {
        Lanes::Depth => include_str!("../../../shaders/contract/packed_b_depth.wgsl"),
        _ => include_str!("../../../shaders/contract/packed_b_edge.wgsl"),
    };
    let shader = vec4s_of(Shader::new(format!("contract packed_b {dtype} {lanes:?}")), "b", dtype);
    let shader = vec4s_of(shader, "c", computed(dtype));
    let shader = shader.u32s(&["count", "n", "depth", "inner", "b_outer", "b_step", "b_column"]);
    shader.define("COLUMNS", format!("{COLUMNS}u")).body(text)
}

/// Copies `b` of `c` into `packed_b`.
pub(super) fn enqueue(
    work: Work<'_>,
    device: &Device,
    c: &Contraction<'_>,
    lanes: Lanes,
    packed_b: &Tensor,
) -> Result<()> {
    let depth = c.outer * c.inner;
    let outer = match c.lines {
        Lines::Strided(stride) => stride,
        _ => c.inner * c.b_step,
    };
    let count = depth * (c.n / 4) / if lanes == Lanes::Depth { 4 } else { 1 };
    let vec4s = |t: &Tensor| Binding::raw(t, 4 * t.dtype.size() as u32);
    let dtype = c.b.dtype;
    let program = Program {
        key: Key::new("contract packed_b").dtype(dtype).number(lanes as u32),
        shader: &|| shader(dtype, lanes),
        bindings: smallvec![vec4s(c.b), vec4s(packed_b)],
        params: Params::new()
            .u32(count)
            .u32(c.n)
            .u32(depth)
            .u32(c.inner)
            .u32(outer)
            .u32(c.b_step)
            .u32(c.b_column),
        grid: Grid::linear(count, WORKGROUP),
    };
    work.program(device, &program)
}
