//! Unique and UniqueWithCounts: the distinct values in the order of their first occurrence.
//!
//! A stable sort brings equal values together, the first of each run is its first occurrence, and prefix sums over the marks of those
//! number them.

use smallvec::smallvec;

use super::keys::{Kind, order};
use super::scan::{exclusive, word};
use crate::device::{Binding, Grid, Key, Params, Program};
use crate::dtype::DType::{self, *};
use crate::dtype::types::INDEX;
use crate::error::Result;
use crate::kernels::gather::index::Indices;
use crate::kernels::gather::rows::Gather;
use crate::kernels::op::OpContext;
use crate::kernels::registry::{Registry, WAITS_FOR_SIZE};
use crate::require;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::Tensor;

const TYPES: &[DType] = &[F32, F16, BF16, F64, Bool, I8, I16, I32, I64, U8, U16, U32, U64];

/// Registers the ops.
pub fn register(r: &mut Registry) {
    for (op, counted) in [("Unique", false), ("UniqueWithCounts", true)] {
        r.op(op).types("T", TYPES).types("out_idx", INDEX).note(WAITS_FOR_SIZE).kernel(move |attrs| {
            let index = attrs.dtype("out_idx")?;
            Ok(move |ctx: &mut dyn OpContext| unique(ctx, index, counted))
        });
    }
}

/// Outputs y (0), idx (1) and, where `counted`, count (2). Waits for the device, for the number of distinct values is an extent.
fn unique(ctx: &mut dyn OpContext, index: DType, counted: bool) -> Result<()> {
    let x = ctx.input(0)?;
    require!(x.rank() == 1, "unique expects a 1D vector.");
    let n = x.len();
    let idx = ctx.output(1, index, &[n])?;
    if n == 0 {
        ctx.output(0, x.dtype, &[0])?;
        if counted {
            ctx.output(2, index, &[0])?;
        }
        return Ok(());
    }
    let sorted = order(ctx, &x, n, false)?.values;
    let flags = ctx.temp(U32, &[n])?;
    let runs = ctx.temp(U32, &[n + 1])?;
    heads(ctx, &x, &sorted, &flags)?;
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
            Binding::raw(&idx, 4),
            Binding::raw(&sizes, 4),
        ],
        params: Params::new().u32(n).u32(index.size() / 4).u32(u32::from(counted)),
        grid: Grid::linear(n, WORKGROUP),
    })?;
    let indices = Indices::new(&places, &[n])?;
    Gather { batch: 1, outer: 1, count: distinct, inner: 1 }.enqueue(ctx.device(), &x, &indices, &y)
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

/// The key of positive infinity (its high word where there are two): what lies beyond, or below its counterpart, is NaN.
const fn infinity(dtype: DType) -> u32 {
    match dtype {
        F16 => 0xfc00,
        BF16 => 0xff80,
        F32 => 0xff80_0000,
        F64 => 0xfff0_0000,
        _ => 0,
    }
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
