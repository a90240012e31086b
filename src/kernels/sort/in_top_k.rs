//! InTopKV2: whether a row's wanted class is among its k greatest predictions.

use smallvec::smallvec;

use super::buckets::clamped;
use super::keys::Kind;
use crate::device::{Binding, Grid, Key, Params, Program};
use crate::dtype::DType::{self, *};
use crate::dtype::types::INDEX;
use crate::error::Result;
use crate::kernels::movement::shape;
use crate::kernels::op::OpContext;
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::{Field, Shader};

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
    ctx.device().enqueue(&Program {
        key: Key::new("sort in top k").dtype(index),
        shader: &|| shader(index),
        bindings: smallvec![
            (&x).into(),
            Binding::raw(&targets, 4),
            Binding::raw(&k, 4),
            (&hits).into()
        ],
        params: Params::new().u32(rows).u32(classes).u32(index.size() / 4),
        grid: Grid::groups(rows),
    })?;
    ctx.device().enqueue(&Program {
        key: Key::new("sort hits"),
        shader: &hits_shader,
        bindings: smallvec![(&hits).into(), (&out).into()],
        params: Params::new().u32(rows),
        grid: Grid::map(rows, Bool),
    })
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let mut all = vec![hits_shader()];
    all.extend(INDEX.iter().map(|t| shader(*t)));
    all
}

fn shader(index: DType) -> Shader {
    Kind::of(F32)
        .declare(Shader::new(format!("in top k {index}")))
        .bind_raw("numbers", "u32", 4)
        .bind_raw("k_words", "u32", 4)
        .bind("hits", U32)
        .u32s(&["count", "limit", "words"])
        .workgroup([WORKGROUP, 1, 1])
        .body(clamped(index))
        .body(include_str!("../../../shaders/sort/in_top_k.wgsl"))
}

fn hits_shader() -> Shader {
    Shader::new("sort hits")
        .bind("hits", U32)
        .bind("out", Bool)
        .param("count", Field::U32)
        .body("fn value(i: u32) -> bool {\n    return load_hits(i) != 0u;\n}")
        .map("out")
}
