//! TopK, TopKV2 and ApproxTopK: the k greatest elements of each row, sorted, with equal values by
//! position.
//!
//! A [`tournament`] of segments of each row finds a small k. If k is too large for a tournament to
//! leave fewer elements, all rows are sorted at once by the device-wide radix sort.

use super::keys::order;
use super::tournament::{CAPACITY, TOURNAMENT, tournament};
use crate::device::{Grid, declare_program};
use crate::dtype::{
    DType::{self, *},
    types,
};
use crate::error::{Error, Result};
use crate::kernels::gather::index::Indices;
use crate::kernels::gather::rows::Gather;
use crate::kernels::movement::shape;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::require;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::{HostTensor, Tensor};

const TYPES: &[DType] = types::REALS;
/// Registers the ops.
pub fn register(r: &mut Registry) {
    // TensorFlow's own kernels of TopK require an attribute that the op lacks, so that no node ever
    // finds them; this kernel works.
    r.op("TopK")
        .types("T", TYPES)
        .items(&[(0, 1)])
        .kernel(|attrs| Ok(TopK { k: Some(attrs.int("k")?), descending: true }));
    r.op("TopKV2")
        .types("T", TYPES)
        .types("index_type", &[I32])
        .host(&["k"])
        .items(&[(0, 1)])
        .kernel(|_| {
            Ok(TopK { k: None, descending: true }) // `sorted` = false allows any order
        });
    r.op("ApproxTopK").types("T", types::FLOATS).items(&[(0, 1)]).kernel(approx);
}

fn approx(attrs: &dyn Attrs) -> Result<TopK> {
    let dimension = attrs.int("reduction_dimension")?;
    if dimension != -1 {
        return Err(Error::Unimplemented(format!(
            "ApproxTopK reduces the last dimension alone (reduction_dimension = -1), got \
             {dimension}"
        )));
    }
    Ok(TopK { k: Some(attrs.int("k")?), descending: attrs.bool("is_max_k")? })
}

/// Inputs: the rows (0), and k (1, host) if it is not an attribute.
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
        let Some((n, batch)) = x.dims.split_last() else {
            crate::invalid!("input must be >= 1-D, got shape []")
        };
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
        Gather { batch: rows, outer: 1, count: k, inner: 1 }.enqueue(
            ctx.device(),
            &x,
            &indices,
            &values,
        )
    }
}

fn scalar(k: &HostTensor) -> Result<i64> {
    require!(k.dims.is_empty(), "k must be scalar, got shape {}", shape(&k.dims));
    match k.dtype {
        I16 => Ok(k.values::<i16>()[0].into()),
        _ => Ok(k.to_i64()?[0]),
    }
}

/// Writes the positions of the first `k` elements of each row of the matrix `x`, in the order of
/// their values, to the uint32 tensor `out`.
pub fn top(
    ctx: &mut dyn OpContext,
    x: &Tensor,
    k: usize,
    descending: bool,
    out: &Tensor,
) -> Result<()> {
    let (rows, length) = (x.dims[0], x.dims[1]);
    ctx.device().check_extent(x.len())?;
    if length > CAPACITY && k > TOURNAMENT {
        let sorted = order(ctx, x, length, descending)?;
        return heads(ctx, &sorted.values, rows, length, k, out);
    }
    tournament(ctx, x, k, descending, out)
}

/// The first `k` positions of each row of a sorted matrix, counted within the row.
fn heads(
    ctx: &dyn OpContext,
    sorted: &Tensor,
    rows: usize,
    n: usize,
    k: usize,
    out: &Tensor,
) -> Result<()> {
    FirstOfRows { sorted: sorted.into(), out: out.into(), count: rows * k, n, k }.enqueue(
        ctx.device(),
        &FirstOfRows::of(),
        Grid::linear(rows * k, WORKGROUP),
    )
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    vec![FirstOfRows::shader()]
}

declare_program! {
    /// The first `k` elements of each sorted row of `n`.
    struct FirstOfRows = "sort heads"();
    bindings { sorted: U32, out: U32 }
    params { count: usize, n: usize, k: usize }
    shader "sort heads" =>
        .body(
        "fn value(i: u32) -> u32 {\n    let row = i / p.k;\n    return load_sorted(row * p.n \
         + i % p.k) - row * p.n;\n}",
        )
        .map("out")
}
