//! Copies of patches: where lines of the output are short, a gradient of the filter would look up
//! where each begins for few steps, of which those that do not fill four are lost. A copy in which
//! a step's rows follow each other makes its rows dense ones.

use smallvec::smallvec;

use super::element::computed;
use super::geometry::Geometry;
use super::text::{WINDOW, spatial_defines, vec4s_of};
use super::tile::Memory;
use super::work::Work;
use super::{Contraction, Lanes, Lines, Rows, Variant};
use crate::device::{Binding, Device, Grid, Key, Params, Program};
use crate::dtype::DType;
use crate::error::Result;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::Tensor;

/// Longest line for which it is worth a copy.
const LONGEST: usize = 16;
/// Fewest columns of the result that make up for the copy.
const LEAST: usize = 128;
/// Most elements of the copy.
const MOST: usize = 1 << 23;

/// Whether a contraction should read a copy of `a`, of at most `most` elements, whose rows are
/// dense.
pub(super) fn worthwhile(c: &Contraction<'_>, v: &Variant, most: usize) -> bool {
    v.tile.memory == Memory::Subgroup
        && matches!(c.rows, Rows::Window(_))
        && c.lines == Lines::Dense
        && v.a.1 == Lanes::Edge
        && c.batch.len() == 1
        && c.inner < LONGEST
        && !c.inner.is_multiple_of(4)
        && c.n >= LEAST
        && c.m * c.outer * c.inner <= MOST.min(most)
}

/// The text.
pub(super) fn shader(dtype: DType, spatial: usize) -> Shader {
    let shader = vec4s_of(Shader::new(format!("contract im2col {dtype} {spatial}")), "a", dtype);
    let shader = vec4s_of(shader, "c", computed(dtype)).u32s(&["count", "m", "inner", "a_step"]);
    let shader = Geometry::declare(shader, spatial, true).body(WINDOW);
    let value = if dtype == DType::I32 { "vec4<i32>" } else { "vec4<f32>" };
    spatial_defines(shader, spatial)
        .define("QUAD", value)
        .body(include_str!("../../../shaders/contract/im2col.wgsl"))
}

/// Copies `a` of `c` into `steps`, all rows of a step one after the other.
pub(super) fn enqueue(
    work: Work<'_>,
    device: &Device,
    c: &Contraction<'_>,
    steps: &Tensor,
) -> Result<()> {
    let Rows::Window(g) = c.rows else { unreachable!("only windows are worthwhile") };
    let (count, dtype, spatial) = (c.m / 4 * c.outer, c.a.dtype, g.spatial_class());
    let vec4s = |t: &Tensor| Binding::raw(t, 4 * t.dtype.size() as u32);
    let program = Program {
        key: Key::new("contract im2col").dtype(dtype).number(spatial as u32),
        shader: &|| shader(dtype, spatial),
        bindings: smallvec![vec4s(c.a), vec4s(steps)],
        params: g.window_params(Params::new().u32(count).u32(c.m).u32(c.inner).u32(c.a_step)),
        grid: Grid::linear(count, WORKGROUP),
    };
    work.program(device, &program)
}
