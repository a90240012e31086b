//! Unique and UniqueWithCounts by a sort: no hashing, so no input is worse than another.
//!
//! A stable sort brings equal values together. The first element of each run is its first
//! occurrence, and prefix sums over the marks of first occurrences number them.

use super::keys::infinity;
use super::keys::{KeyType, order};
use super::scan::{exclusive, word};
use crate::device::{Binding, Grid, declare_program};
use crate::dtype::DType::{I32, U32};
use crate::error::Result;
use crate::kernels::gather::index::Indices;
use crate::kernels::gather::rows::Gather;
use crate::kernels::op::OpContext;
use crate::shader::{Raw, Shader, WORKGROUP};
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
    MarkFirst {
        permutation: (&sorted).into(),
        runs: (&runs).into(),
        run_at: (&run_at).into(),
        marks: (&flags).into(),
        count: n,
    }
    .enqueue(ctx.device(), &MarkFirst::of(), Grid::linear(n, WORKGROUP))?;
    let ranks = ctx.temp(U32, &[n + 1])?;
    exclusive(ctx, &flags, &ranks)?;
    let distinct = word(ctx, &ranks, n)? as usize;
    let y = ctx.output(0, x.dtype, &[distinct])?;
    let places = ctx.temp(I32, &[distinct])?;
    let sizes = if counted { ctx.output(2, index, &[distinct])? } else { places.clone() };
    NumberDistinct {
        permutation: (&sorted).into(),
        runs: (&runs).into(),
        run_at: (&run_at).into(),
        ranks: (&ranks).into(),
        order: Binding::raw(&places, 4),
        idx: Binding::raw(idx, 4),
        sizes: Binding::raw(&sizes, 4),
        count: n,
        words: index.size() / 4,
        sized: counted,
    }
    .enqueue(ctx.device(), &NumberDistinct::of(), Grid::linear(n, WORKGROUP))?;
    let indices = Indices::new(&places, &[n])?;
    Gather { batch: 1, outer: 1, count: distinct, inner: 1 }.enqueue(ctx.device(), x, &indices, &y)
}

/// Marks where runs of equal values begin in the order `sorted` of `x`.
fn heads(ctx: &dyn OpContext, x: &Tensor, sorted: &Tensor, flags: &Tensor) -> Result<()> {
    let kind = KeyType::of(x.dtype);
    MarkHeads {
        x: kind.binding(x),
        permutation: sorted.into(),
        heads: flags.into(),
        count: x.len(),
        infinity: infinity(x.dtype),
    }
    .enqueue(ctx.device(), &MarkHeads::of(kind), Grid::linear(x.len(), WORKGROUP))
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let mut all = vec![MarkFirst::shader(), NumberDistinct::shader()];
    all.extend(KeyType::all().into_iter().map(MarkHeads::shader));
    all
}

declare_program! {
    /// Marks the elements that begin a run of equal values.
    struct MarkHeads = "sort unique heads"(kind: KeyType);
    bindings { x: kind, permutation: U32, heads: U32 }
    params { count: usize, infinity: u32 }
    shader format!("sort unique heads {kind:?}") =>
        .define("NAN", kind.is_nan())
        .body(include_str!("../../../shaders/sort/unique_runs.wgsl"))
        .map("heads")
}

declare_program! {
    /// Writes the start of each run of equal values, and marks its first position.
    struct MarkFirst = "sort unique mark"();
    bindings { permutation: U32, runs: U32, run_at: U32, marks: U32 }
    params { count: usize }
    shader "sort unique mark" => .body(include_str!("../../../shaders/sort/unique_mark.wgsl"))
}

declare_program! {
    /// Numbers the distinct elements in the order of their first occurrences.
    struct NumberDistinct = "sort unique finish"();
    bindings {
        permutation: U32, runs: U32, run_at: U32, ranks: U32, order: U32, idx: Raw("u32", 4),
        sizes: Raw("u32", 4),
    }
    params { count: usize, words: usize, sized: bool }
    shader "sort unique finish" => .body(include_str!("../../../shaders/sort/unique_finish.wgsl"))
}
