//! OneHot.

use smallvec::smallvec;

use super::index::{self, Indices};
use crate::device::{Grid, Key, Params, Program};
use crate::error::Result;
use crate::kernels::movement::unit::Unit;
use crate::kernels::movement::{checked_product, shape};
use crate::kernels::op::{OpContext, OpContextExt};
use crate::require;
use crate::shader::{Shader, WORKGROUP};

/// OneHot: inputs indices (0), depth (1, host), on_value (2) and off_value (3).
pub fn one_hot(ctx: &mut dyn OpContext, axis: i64) -> Result<()> {
    let indices = ctx.input(0)?;
    let depth = ctx.host_i64(1, "depth")?;
    let (on, off) = (ctx.input(2)?, ctx.input(3)?);
    let rank = indices.rank();
    require!(
        axis == -1 || (0..=rank as i64).contains(&axis),
        "Expected axis to be -1 or between [0, {}).  But received: {axis}",
        rank + 1
    );
    require!(depth >= 0, "depth must be non-negative, got: {depth}");
    require!(on.dims.is_empty(), "on_value must be a scalar, but got: {}", shape(&on.dims));
    require!(off.dims.is_empty(), "off_value must be a scalar, but got: {}", shape(&off.dims));
    let axis = if axis == -1 { rank } else { axis as usize };
    let mut out = indices.dims.clone();
    out.insert(axis, depth as usize);
    checked_product(&out)?;
    let dst = ctx.output(0, on.dtype, &out)?;
    if dst.is_empty() {
        return Ok(());
    }
    let count = ctx.device().check_extent(dst.len())?;
    let inner: usize = indices.dims[axis..].iter().product();
    let unit = Unit::of(on.dtype);
    let len = indices.len();
    let indices = Indices::new(&indices, &[depth as usize])?;
    ctx.device().enqueue(&Program {
        key: Key::new("one_hot").number(unit.key()),
        shader: &|| shader(unit),
        bindings: smallvec![
            unit.binding(on.address, 1),
            unit.binding(off.address, 1),
            unit.binding(dst.address, u64::from(count)),
            indices.binding(0, len),
        ],
        params: indices.params(Params::new().u32(count).u32(inner).u32(depth as usize)),
        grid: Grid::linear(unit.invocations(count as usize), WORKGROUP),
    })
}

/// The shader of OneHot with values of `unit`.
pub fn shader(unit: Unit) -> Shader {
    let shader = Shader::new(format!("one_hot {}", unit.bytes())).u32s(&["count", "inner", "classes"]);
    let shader = index::declare(unit.bind(unit.bind(unit.bind(shader, "on"), "off"), "dst"))
        .define("ELEMENT", unit.wgsl())
        .body(include_str!("../../../shaders/gather/one_hot.wgsl"));
    unit.map(shader)
}
