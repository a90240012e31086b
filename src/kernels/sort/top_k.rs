//! TopK, TopKV2 and ApproxTopK: the k greatest of each row, sorted, equal values by position.
//!
//! Rows are cut into segments of 1,024 elements, each sorted by one workgroup, and what each segment keeps meets in the next
//! round. Where k is too large for that to shrink anything, all rows are sorted at once by the device-wide radix sort.

use smallvec::smallvec;

use super::keys::{Kind, order};
use crate::device::{Grid, Key, Params, Program};
use crate::dtype::DType::{self, *};
use crate::error::{Error, Result};
use crate::kernels::gather::index::Indices;
use crate::kernels::gather::rows::Gather;
use crate::kernels::movement::shape;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::{HostTensor, Tensor};

const TYPES: &[DType] = &[F32, F16, BF16, F64, I8, I16, I32, I64, U8, U16, U32, U64];
/// Elements that one workgroup sorts, `CAPACITY` in the shader.
const CAPACITY: usize = 1024;
/// The largest k for which a round leaves at most a quarter of the candidates.
const TOURNAMENT: usize = CAPACITY / 4;

/// Registers the ops.
pub fn register(r: &mut Registry) {
    // TensorFlow's own kernels of TopK ask for an attribute that the op lacks, so that no node ever finds them; this one works.
    r.op("TopK").types("T", TYPES).kernel(|attrs| Ok(TopK { k: Some(attrs.int("k")?), descending: true }));
    r.op("TopKV2").types("T", TYPES).types("index_type", &[I32]).host(&["k"]).kernel(|_| {
        Ok(TopK { k: None, descending: true }) // `sorted` = false allows any order
    });
    r.op("ApproxTopK").types("T", &[F32, F16, BF16, F64]).kernel(approx);
}

fn approx(attrs: &dyn Attrs) -> Result<TopK> {
    let dimension = attrs.int("reduction_dimension")?;
    if dimension != -1 {
        return Err(Error::Unimplemented(format!(
            "ApproxTopK reduces the last dimension alone (reduction_dimension = -1), got {dimension}"
        )));
    }
    Ok(TopK { k: Some(attrs.int("k")?), descending: attrs.bool("is_max_k")? })
}

/// Inputs: the rows (0), and k (1, host) where it is no attribute.
struct TopK {
    k: Option<i64>,
    descending: bool,
}

impl Kernel for TopK {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let k = match self.k {
            Some(k) => k,
            None => scalar(&ctx.host_input(1)?)?,
        };
        require!(k >= 0, "Need k >= 0, got {k}");
        let k = k as usize;
        let x = ctx.input(0)?;
        let Some((n, batch)) = x.dims.split_last() else { crate::invalid!("input must be >= 1-D, got shape []") };
        require!(*n >= k, "input must have at least k columns. Had {n}, needed {k}");
        let dims = [batch, &[k]].concat();
        let values = ctx.output(0, x.dtype, &dims)?;
        let positions = ctx.output(1, I32, &dims)?;
        if values.is_empty() {
            return Ok(());
        }
        let rows = batch.iter().product();
        top(ctx, &x.reshaped(&[rows, *n]), k, self.descending, &positions.reinterpreted(U32))?;
        let indices = Indices::new(&positions, &[*n])?;
        Gather { batch: rows, outer: 1, count: k, inner: 1 }.enqueue(ctx.device(), &x, &indices, &values)
    }
}

fn scalar(k: &HostTensor) -> Result<i64> {
    require!(k.dims.is_empty(), "k must be scalar, got shape {}", shape(&k.dims));
    match k.dtype {
        I16 => Ok(k.values::<i16>()[0].into()),
        _ => Ok(k.to_i64()?[0]),
    }
}

/// Writes the positions of the first `k` of each row of the matrix `x` in the order of values into the uint32 tensor `out`.
pub fn top(ctx: &mut dyn OpContext, x: &Tensor, k: usize, descending: bool, out: &Tensor) -> Result<()> {
    let (rows, length) = (x.dims[0], x.dims[1]);
    ctx.device().check_extent(x.len())?;
    if length > CAPACITY && k > TOURNAMENT {
        let sorted = order(ctx, x, length, descending)?;
        return heads(ctx, &sorted.values, rows, length, k, out);
    }
    let mut candidates: Option<Tensor> = None;
    loop {
        let n = candidates.as_ref().map_or(length, |c| c.dims[1]);
        let per_row = n.div_ceil(CAPACITY);
        let kept = if per_row == 1 { out.clone() } else { ctx.temp(U32, &[rows, per_row * k])? };
        round(ctx, x, candidates.as_ref(), k, descending, &kept)?;
        if per_row == 1 {
            return Ok(());
        }
        candidates = Some(kept);
    }
}

/// Sorts each segment of the candidates and keeps the first `k`.
fn round(
    ctx: &dyn OpContext,
    x: &Tensor,
    candidates: Option<&Tensor>,
    k: usize,
    descending: bool,
    kept: &Tensor,
) -> Result<()> {
    let (rows, length) = (x.dims[0], x.dims[1]);
    let n = candidates.map_or(length, |c| c.dims[1]);
    let per_row = n.div_ceil(CAPACITY);
    let segments = rows * per_row;
    let size = n.min(CAPACITY).next_power_of_two();
    let kind = Kind::of(x.dtype);
    ctx.device().enqueue(&Program {
        key: Key::new("sort top_k").number(kind.key()),
        shader: &|| round_shader(kind),
        bindings: smallvec![kind.binding(x), candidates.unwrap_or(kept).into(), kept.into()],
        params: Params::new()
            .u32(segments)
            .u32(per_row)
            .u32(n)
            .u32(length)
            .u32(size)
            .u32(k)
            .u32(u32::from(candidates.is_some()))
            .u32(if descending { u32::MAX } else { 0 }),
        grid: Grid::groups(segments.div_ceil(CAPACITY / size)),
    })
}

/// The first `k` positions of each row of a sorted matrix, counted within the row.
fn heads(ctx: &dyn OpContext, sorted: &Tensor, rows: usize, n: usize, k: usize, out: &Tensor) -> Result<()> {
    ctx.device().enqueue(&Program {
        key: Key::new("sort heads"),
        shader: &heads_shader,
        bindings: smallvec![sorted.into(), out.into()],
        params: Params::new().u32(rows * k).u32(n).u32(k),
        grid: Grid::linear(rows * k, WORKGROUP),
    })
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let mut all = vec![heads_shader()];
    all.extend(Kind::all().into_iter().map(round_shader));
    all
}

fn round_shader(kind: Kind) -> Shader {
    let (high, compare, exchange, fill) = if kind.is_wide() {
        (
            "var<workgroup> high: array<u32, CAPACITY>;",
            "    if high[a] != high[b] {\n        return high[a] > high[b];\n    }",
            "    let h = high[a];\n    high[a] = high[b];\n    high[b] = h;",
            "        high[slot] = key.y;",
        )
    } else {
        ("", "", "", "")
    };
    kind.declare(Shader::new(format!("top_k {kind:?}")))
        .bind("candidates", U32)
        .bind("kept", U32)
        .u32s(&["segments", "per_row", "n", "length", "size", "keep", "listed", "mask"])
        .define("HIGH", high)
        .define("COMPARE", compare)
        .define("EXCHANGE", exchange)
        .define("FILL", fill)
        .body(include_str!("../../../shaders/sort/top_k.wgsl"))
}

fn heads_shader() -> Shader {
    Shader::new("sort heads")
        .bind("sorted", U32)
        .bind("out", U32)
        .u32s(&["count", "n", "k"])
        .body("fn value(i: u32) -> u32 {\n    let row = i / p.k;\n    return load_sorted(row * p.n + i % p.k) - row * p.n;\n}")
        .map("out")
}
