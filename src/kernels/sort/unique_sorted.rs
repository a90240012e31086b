//! Unique and UniqueWithCounts by a sort: no hashing, so no input is worse than another.
//!
//! A stable sort brings equal values together. The first element of each run is its first
//! occurrence, and prefix sums over the marks of first occurrences number them.

use smallvec::smallvec;

use super::keys::infinity;
use super::keys::{Kind, order};
use super::scan::{exclusive, word};
use crate::device::{Binding, Grid, Key, Params, Program};
use crate::dtype::DType::{I32, U32};
use crate::error::Result;
use crate::kernels::gather::index::Indices;
use crate::kernels::gather::rows::Gather;
use crate::kernels::op::OpContext;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::Tensor;

/// Writes output 1, which is `idx`, and makes output y (0) and, if `counted`, output count (2).
/// Waits for the device.
pub fn by_sort(ctx: &mut dyn OpContext, x: &Tensor, idx: &Tensor, counted: bool) -> Result<()> {
    let (n, index) = (x.len(), idx.dtype);
    let sorted = order(ctx, x, n, false)?.values;
    let flags = ctx.temp(U32, &[n])?;
    let runs = ctx.temp(U32, &[n + 1])?;
    heads(ctx, x, &sorted, &flags)?;
    exclusive(ctx, &flags, &runs)?;
    let run_at = ctx.temp(U32, &[n + 1])?;
    ctx.device().fill(flags.address, flags.bytes(), 0)?;
    ctx.device().enqueue(&Program {
        key: Key::new("sort unique mark"),
        shader: &mark_shader,
        bindings: smallvec![(&sorted).into(), (&runs).into(), (&run_at).into(), (&flags).into(),],
        params: Params::new().u32(n),
        grid: Grid::linear(n, WORKGROUP),
    })?;
    let ranks = ctx.temp(U32, &[n + 1])?;
    exclusive(ctx, &flags, &ranks)?;
    let distinct = word(ctx, &ranks, n)? as usize;
    let y = ctx.output(0, x.dtype, &[distinct])?;
    let places = ctx.temp(I32, &[distinct])?;
    let sizes = if counted { ctx.output(2, index, &[distinct])? } else { places.clone() };
    ctx.device().enqueue(&Program {
        key: Key::new("sort unique finish"),
        shader: &finish_shader,
        bindings: smallvec![
            (&sorted).into(),
            (&runs).into(),
            (&run_at).into(),
            (&ranks).into(),
            Binding::raw(&places, 4),
            Binding::raw(idx, 4),
            Binding::raw(&sizes, 4),
        ],
        params: Params::new().u32(n).u32(index.size() / 4).u32(u32::from(counted)),
        grid: Grid::linear(n, WORKGROUP),
    })?;
    let indices = Indices::new(&places, &[n])?;
    Gather { batch: 1, outer: 1, count: distinct, inner: 1 }.enqueue(ctx.device(), x, &indices, &y)
}

/// Marks where runs of equal values begin in the order `sorted` of `x`.
fn heads(ctx: &dyn OpContext, x: &Tensor, sorted: &Tensor, flags: &Tensor) -> Result<()> {
    let kind = Kind::of(x.dtype);
    ctx.device().enqueue(&Program {
        key: Key::new("sort unique heads").number(kind.key()),
        shader: &|| heads_shader(kind),
        bindings: smallvec![kind.binding(x), sorted.into(), flags.into()],
        params: Params::new().u32(x.len()).u32(infinity(x.dtype)),
        grid: Grid::linear(x.len(), WORKGROUP),
    })
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let mut all = vec![mark_shader(), finish_shader()];
    all.extend(Kind::all().into_iter().map(heads_shader));
    all
}

fn heads_shader(kind: Kind) -> Shader {
    kind.declare(Shader::new(format!("sort unique heads {kind:?}")))
        .bind("permutation", U32)
        .bind("heads", U32)
        .u32s(&["count", "infinity"])
        .define("NAN", kind.is_nan())
        .body(include_str!("../../../shaders/sort/unique_runs.wgsl"))
        .map("heads")
}

fn mark_shader() -> Shader {
    ["permutation", "runs", "run_at", "marks"]
        .into_iter()
        .fold(Shader::new("sort unique mark"), |shader, name| shader.bind(name, U32))
        .u32s(&["count"])
        .body(include_str!("../../../shaders/sort/unique_mark.wgsl"))
}

fn finish_shader() -> Shader {
    ["permutation", "runs", "run_at", "ranks", "order"]
        .into_iter()
        .fold(Shader::new("sort unique finish"), |shader, name| shader.bind(name, U32))
        .bind_raw("idx", "u32", 4)
        .bind_raw("sizes", "u32", 4)
        .u32s(&["count", "words", "sized"])
        .body(include_str!("../../../shaders/sort/unique_finish.wgsl"))
}
