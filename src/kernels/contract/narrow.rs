//! Results of few columns: the lanes of a software adapter's subgroup lie along columns, of which a
//! narrow result leaves most without work, and everywhere an invocation computes four. The
//! transpose is wide: `c^T = b^T a^T`, where operands and result change places and nothing is
//! moved.
//!
//! What is then few rows may be copied once so that its elements are loaded four steps at a time.

use smallvec::smallvec;

use super::element::computed;
use super::text::vec4s_of;
use super::tile::Memory;
use super::work::Work;
use super::{Contraction, Lanes, Lines, Rows, Store, Variant};
use crate::device::{Binding, Device, Grid, Key, Params, Profile, Program};
use crate::dtype::DType;
use crate::error::Result;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::Tensor;

/// Columns that the lanes of a subgroup cover.
const WIDE: usize = super::packed_b::COLUMNS;
/// Columns of an invocation of a GPU.
const GPU_WIDE: usize = 4;
/// Fewest columns for which a copy of few rows is worth a dispatch.
const LEAST: usize = 256;

/// The transposed contraction, where its lanes have more to do.
pub(super) fn transposed<'a>(c: &Contraction<'a>, profile: &Profile) -> Option<Contraction<'a>> {
    let (Rows::Dense { stride }, Lines::Dense, Store::Rows(line)) = (c.rows, c.lines, c.store)
    else {
        return None;
    };
    let wide = if profile.is_software() { WIDE } else { GPU_WIDE };
    if c.batch.len() != 1 || c.outer != 1 || c.n >= wide || c.m < wide {
        return None;
    }
    let mut turned = c.clone();
    (turned.m, turned.n) = (c.n, c.m);
    (turned.a, turned.b) = (c.b, c.a);
    (turned.rows, turned.a_step, turned.a_matrix) =
        (Rows::Dense { stride: c.b_column }, c.b_step, c.b_matrix);
    (turned.b_column, turned.b_step, turned.b_matrix) = (stride, c.a_step, c.a_matrix);
    turned.store = Store::Columns(line);
    turned.conjugated = [c.conjugated[1], c.conjugated[0]];
    Some(turned)
}

/// Whether a contraction should read a copy of `a`, of at most `most` elements, whose rows are
/// dense.
pub(super) fn worthwhile(c: &Contraction<'_>, v: &Variant, most: usize) -> bool {
    v.tile.memory == Memory::Subgroup
        && matches!(c.rows, Rows::Dense { .. })
        && v.a.1 == Lanes::One
        && c.batch.len() == 1
        && c.outer == 1
        && c.inner.is_multiple_of(4)
        && c.m <= WIDE
        && c.n >= LEAST
        && c.m * c.inner <= most
}

/// The text.
pub(super) fn shader(dtype: DType) -> Shader {
    let shader = Shader::new(format!("contract rows {dtype}")).bind("a", dtype);
    let shader =
        vec4s_of(shader, "c", computed(dtype)).u32s(&["count", "vec4s", "a_row", "a_step"]);
    shader.body(include_str!("../../../shaders/contract/dense.wgsl"))
}

/// Copies `a` of `c` into `rows`, one after the other.
pub(super) fn enqueue(
    work: Work<'_>,
    device: &Device,
    c: &Contraction<'_>,
    rows: &Tensor,
) -> Result<()> {
    let Rows::Dense { stride } = c.rows else { unreachable!("only dense rows are worthwhile") };
    let (vec4s, dtype) = (c.inner / 4, c.a.dtype);
    let program = Program {
        key: Key::new("contract rows").dtype(dtype),
        shader: &|| shader(dtype),
        bindings: smallvec![Binding::from(c.a), Binding::raw(rows, 4 * rows.dtype.size() as u32)],
        params: Params::new().u32(c.m * vec4s).u32(vec4s).u32(stride).u32(c.a_step),
        grid: Grid::linear(c.m * vec4s, WORKGROUP),
    };
    work.program(device, &program)
}
