//! InTopKV2: whether a row's wanted class is among its k greatest predictions.

use super::buckets::clamped;
use super::keys::KeyType;
use crate::device::{Binding, Grid, declare_program};
use crate::dtype::DType::{self, *};
use crate::dtype::types::INDEX;
use crate::error::Result;
use crate::kernels::movement::shape;
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::{Raw, Shader};

/// Invocations that share a row.
const WORKGROUP: u32 = 64;

/// Registers the op.
pub fn register(r: &mut Registry) {
    r.op("InTopKV2")
        .types("T", INDEX)
        .items(&[(0, 1), (1, 0)])
        .kernel(|_| Ok(in_top_k as super::Compute));
}

/// Inputs: predictions (0, float32), targets (1) and k (2), all on the device.
fn in_top_k(ctx: &mut dyn OpContext) -> Result<()> {
    let (x, targets, k) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
    require!(x.rank() == 2, "predictions must be 2-dimensional");
    require!(targets.rank() == 1, "targets must be 1-dimensional");
    let (rows, classes) = (x.dims[0], x.dims[1]);
    require!(
        rows == targets.len(),
        "First dimension of predictions {rows} must match length of targets {}",
        targets.len()
    );
    require!(k.rank() == 0, "k must be 0-D, got shape {}", shape(&k.dims));
    let out = ctx.output(0, Bool, &[rows])?;
    if rows == 0 {
        return Ok(());
    }
    ctx.device().check_extent(x.len())?;
    let hits = ctx.temp(U32, &[rows])?;
    let index = targets.dtype;
    CountHits {
        x: (&x).into(),
        numbers: Binding::raw(&targets, 4),
        k_words: Binding::raw(&k, 4),
        hits: (&hits).into(),
        count: rows,
        limit: classes,
        words: index.size() / 4,
    }
    .enqueue(ctx.device(), &CountHits::of(index), Grid::groups(rows))?;
    InTopK { hits: (&hits).into(), out: (&out).into(), count: rows }.enqueue(
        ctx.device(),
        &InTopK::of(),
        Grid::map(rows, Bool),
    )
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let mut all = vec![InTopK::shader()];
    all.extend(INDEX.iter().map(|t| CountHits::shader(*t)));
    all
}

declare_program! {
    /// 1 for each row whose wanted class is among its k greatest predictions.
    struct CountHits = "sort in top k"(index: DType);
    bindings { x: KeyType::of(F32), numbers: Raw("u32", 4), k_words: Raw("u32", 4), hits: U32 }
    params { count: usize, limit: usize, words: usize }
    shader format!("in top k {index}") =>
        .workgroup([WORKGROUP, 1, 1])
        .body(clamped(index))
        .body(include_str!("../../../shaders/sort/in_top_k.wgsl"))
}

declare_program! {
    /// Turns numbers into booleans.
    struct InTopK = "sort hits"();
    bindings { hits: U32, out: Bool }
    params { count: usize }
    shader "sort hits" =>
        .body("fn value(i: u32) -> bool {\n    return load_hits(i) != 0u;\n}")
        .map("out")
}
