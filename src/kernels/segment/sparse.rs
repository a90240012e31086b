//! SparseSegmentSum, SparseSegmentMean and SparseSegmentSqrtN: rows picked by their indices and
//! summed by ascending segment ids, with the number of segments given or not, and their gradients.
//!
//! Without a number of segments the ops wait for the device, as SegmentSum does, and refuse bad ids
//! and indices. With a number of segments nothing waits: ids out of range are dropped, and indices
//! out of range pick rows of zeros.

use super::reduce::{Fold, Segments};
use super::scale::{Scale, rescale};
use super::{TYPES, segments};
use crate::device::{Binding, Grid, declare_program};
use crate::dtype::DType::*;
use crate::dtype::types::INDEX;
use crate::error::{Error, Result};
use crate::kernels::movement::checked_product;
use crate::kernels::op::OpContext;
use crate::kernels::registry::{OpBuilder, Registry, WAITS_FOR_SIZE};
use crate::kernels::sort::buckets::narrow;
use crate::kernels::sort::radix::{self, Pairs, bits_below};
use crate::kernels::sort::scan::{exclusive, word, words};
use crate::require;
use crate::shader::{Raw, Shader, WORKGROUP};
use crate::tensor::{Dims, HostTensor, Tensor, shape_text};

/// A scale and its ops: the plain one, the one with the number of segments, the gradient, and the
/// gradient's rows that are not zero.
type Row = (Scale, [&'static str; 4]);

const ROWS: &[Row] = &[
    (
        Scale::One,
        [
            "SparseSegmentSum",
            "SparseSegmentSumWithNumSegments",
            "SparseSegmentSumGrad",
            "SparseSegmentSumGradV2",
        ],
    ),
    (
        Scale::Mean,
        [
            "SparseSegmentMean",
            "SparseSegmentMeanWithNumSegments",
            "SparseSegmentMeanGrad",
            "SparseSegmentMeanGradV2",
        ],
    ),
    (
        Scale::SqrtN,
        [
            "SparseSegmentSqrtN",
            "SparseSegmentSqrtNWithNumSegments",
            "SparseSegmentSqrtNGrad",
            "SparseSegmentSqrtNGradV2",
        ],
    ),
];

/// Adds the ops.
pub fn register(registry: &mut Registry) {
    for (scale, [plain, sized, grad, compact]) in ROWS {
        let scale = *scale;
        let r = &mut *registry;
        op(r, plain, &[])
            .note(WAITS_FOR_SIZE)
            .kernel(move |_| Ok(move |ctx: &mut dyn OpContext| reduce(ctx, scale, false)));
        op(r, sized, &["num_segments"])
            .kernel(move |_| Ok(move |ctx: &mut dyn OpContext| reduce(ctx, scale, true)));
        op(r, grad, &["output_dim0"])
            .kernel(move |_| Ok(move |ctx: &mut dyn OpContext| gradient(ctx, scale)));
        op(r, compact, &["dense_output_dim0"])
            .note(WAITS_FOR_SIZE)
            .kernel(move |_| Ok(move |ctx: &mut dyn OpContext| compact_gradient(ctx, scale)));
    }
}

fn op<'r>(
    registry: &'r mut Registry,
    name: &'static str,
    host: &'static [&'static str],
) -> OpBuilder<'r> {
    registry.op(name).types("T", TYPES).types("Tidx", INDEX).types("Tsegmentids", INDEX).host(host)
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    vec![FirstOutOfRange::shader(), RunHeads::shader(), NumberRuns::shader()]
}

/// Indices, and the same indices as uint32, with `limit` in place of each that is out of range.
pub struct RowNumbers<'a> {
    indices: &'a Tensor,
    narrow: Tensor,
    limit: usize,
}

impl RowNumbers<'_> {
    /// Finds the first index that is out of range.
    pub fn check(&self, ctx: &dyn OpContext, summary: &Tensor) -> Result<()> {
        FirstOutOfRange {
            rows: (&self.narrow).into(),
            summary: Binding::raw(summary, 4),
            count: self.narrow.len(),
            limit: self.limit,
        }
        .enqueue(
            ctx.device(),
            &FirstOutOfRange::of(),
            Grid::linear(self.narrow.len(), WORKGROUP),
        )
    }

    /// The error for index `i`.
    pub fn error<T>(&self, ctx: &dyn OpContext, i: usize) -> Result<T> {
        let value = number(ctx, self.indices, i)?;
        Err(Error::InvalidArgument(format!(
            "Bad: indices[{i}] == {value} out of range [0, {})",
            self.limit
        )))
    }
}

/// Element `i` of an index tensor. Waits for the device.
fn number(ctx: &dyn OpContext, indices: &Tensor, i: usize) -> Result<i64> {
    let size = indices.dtype.size();
    let mut host =
        HostTensor { dtype: indices.dtype, dims: Dims::from_slice(&[1]), bytes: vec![0; size] };
    ctx.device().download(indices.address + (i * size) as u64, &mut host.bytes)?;
    Ok(host.to_i64()?[0])
}

/// Inputs indices (1) and segment_ids (2).
fn places(ctx: &mut dyn OpContext) -> Result<(Tensor, Tensor)> {
    let (indices, ids) = (ctx.input(1)?, ctx.input(2)?);
    require!(indices.rank() == 1, "indices should be a vector.");
    require!(ids.rank() == 1, "segment_ids should be a vector.");
    require!(indices.len() == ids.len(), "segment_ids and indices should have same size.");
    Ok((indices, ids))
}

/// Inputs data (0), indices (1), segment_ids (2) and, where `sized`, num_segments (3, host).
fn reduce(ctx: &mut dyn OpContext, scale: Scale, sized: bool) -> Result<()> {
    let data = ctx.input(0)?;
    let count = if sized {
        let count = ctx.host_input(3)?;
        require!(
            count.dims.is_empty(),
            "num_segments should be a scalar, not shape {}",
            shape_text(&count.dims)
        );
        let count = count.to_i64()?[0];
        require!(count >= 0, "segment ids must be >= 0");
        Some(count as usize)
    } else {
        None
    };
    require!(data.rank() >= 1, "Shape must be at least rank 1");
    let (indices, ids) = places(ctx)?;
    let mut dims = Dims::from_slice(&data.dims);
    let mut places = None;
    if !ids.is_empty() {
        let rows = RowNumbers {
            indices: &indices,
            narrow: narrow(ctx, &indices, data.dims[0])?,
            limit: data.dims[0],
        };
        let (narrowed, found) = match count {
            Some(count) => (narrow(ctx, &ids, count)?, count),
            None => {
                let narrowed = ctx.temp(U32, &[ids.len()])?;
                let found = segments(ctx, &ids, &narrowed, Some(&rows))?;
                (narrowed, found)
            }
        };
        dims[0] = found;
        places = Some((narrowed, rows.narrow));
    } else {
        dims[0] = count.unwrap_or(0);
    }
    checked_product(&dims)?;
    let out = ctx.output(0, data.dtype, &dims)?;
    sum(ctx, &data, places.as_ref(), scale, &out)
}

/// Sums rows of `data` into `out`: `places` holds the ascending id of each place and its row.
fn sum(
    ctx: &mut dyn OpContext,
    data: &Tensor,
    places: Option<&(Tensor, Tensor)>,
    scale: Scale,
    out: &Tensor,
) -> Result<()> {
    if out.is_empty() {
        return Ok(());
    }
    let (Some((ids, rows)), false) = (places, data.is_empty()) else {
        return ctx.device().fill(out.address, out.bytes(), 0);
    };
    let computed = data.dtype.accumulator();
    let direct = computed == out.dtype && scale == Scale::One;
    let total = if direct { out.clone() } else { ctx.temp(computed, &out.dims)? };
    ctx.device().fill(total.address, total.bytes(), 0)?;
    let inner = out.len() / out.dims[0];
    Segments { fold: Fold::Sum, ids, rows: Some(rows), data, inner }.enqueue(ctx, &total)?;
    if direct { Ok(()) } else { rescale(ctx, scale, ids, &total, out) }
}

/// The operands that both forms of a gradient share.
struct Gradient {
    indices: Tensor,
    ids: Tensor,
    /// The gradients of the segments, scaled.
    rows: Tensor,
    /// The dims of the rows that the indices point into.
    dims: Dims,
}

impl Gradient {
    /// Inputs grad (0), indices (1), segment_ids (2) and the number of rows (3, host).
    fn new(ctx: &mut dyn OpContext, name: &str) -> Result<Self> {
        let grad = ctx.input(0)?;
        let (indices, ids) = places(ctx)?;
        let size = ctx.host_input(3)?;
        require!(size.dims.is_empty(), "{name} should be a scalar.");
        let size = size.to_i64()?[0];
        require!(size >= 0, "Expected a non-negative size, got {size}");
        require!(grad.rank() >= 1, "Shape must be at least rank 1");
        let mut dims = Dims::from_slice(&grad.dims);
        dims[0] = size as usize;
        checked_product(&dims)?;
        Ok(Self { indices, ids, rows: grad, dims })
    }

    /// The indices in ascending order (uint32, with the number of rows for those out of range) and
    /// the segment of each, after the gradients of the segments have been scaled.
    fn sort(&mut self, ctx: &mut dyn OpContext, scale: Scale) -> Result<Pairs> {
        let ids = narrow(ctx, &self.ids, self.rows.dims[0])?;
        if scale != Scale::One && !self.rows.is_empty() {
            let scaled = ctx.temp(self.rows.dtype.accumulator(), &self.rows.dims)?;
            rescale(ctx, scale, &ids, &self.rows, &scaled)?;
            self.rows = scaled;
        }
        let keys = narrow(ctx, &self.indices, self.dims[0])?;
        radix::sort(ctx, &keys, Some(&ids), bits_below(self.dims[0] + 1))
    }
}

/// The gradient of all of the data. Output 0 has a row for each of the data's rows.
fn gradient(ctx: &mut dyn OpContext, scale: Scale) -> Result<()> {
    let mut gradient = Gradient::new(ctx, "output_dim0")?;
    let out = ctx.output(0, gradient.rows.dtype, &gradient.dims)?;
    if out.is_empty() || gradient.ids.is_empty() {
        return ctx.device().fill(out.address, out.bytes(), 0);
    }
    let pairs = gradient.sort(ctx, scale)?;
    sum(ctx, &gradient.rows, Some(&(pairs.keys, pairs.values)), Scale::One, &out)
}

/// The gradient of the rows of the data that were used. Outputs are their gradients (0) and their
/// numbers, ascending (1). Waits for the device, since the number of such rows is an extent.
fn compact_gradient(ctx: &mut dyn OpContext, scale: Scale) -> Result<()> {
    let mut gradient = Gradient::new(ctx, "dense_output_dim0")?;
    let (dtype, index, limit) = (gradient.rows.dtype, gradient.indices.dtype, gradient.dims[0]);
    let n = gradient.ids.len();
    if n == 0 {
        gradient.dims[0] = 0;
        ctx.output(0, dtype, &gradient.dims)?;
        return ctx.output(1, index, &[0]).map(drop);
    }
    let pairs = gradient.sort(ctx, scale)?;
    let heads = ctx.temp(U32, &[n])?;
    RunHeads { keys: (&pairs.keys).into(), heads: (&heads).into(), count: n }.enqueue(
        ctx.device(),
        &RunHeads::of(),
        Grid::map(n, U32),
    )?;
    let starts = ctx.temp(U32, &[n + 1])?;
    exclusive(ctx, &heads, &starts)?;
    let [last, rows] = words(ctx, [(&pairs.keys, n - 1), (&starts, n)])?.map(|word| word as usize);
    if last == limit {
        return bad_index(ctx, &gradient.indices, limit);
    }
    gradient.dims[0] = rows;
    let out = ctx.output(0, dtype, &gradient.dims)?;
    let unique = ctx.output(1, index, &[gradient.dims[0]])?;
    let ranks = heads;
    NumberRuns {
        keys: (&pairs.keys).into(),
        starts: (&starts).into(),
        ranks: (&ranks).into(),
        unique: Binding::raw(&unique, 4),
        count: n,
        words: index.size() / 4,
    }
    .enqueue(ctx.device(), &NumberRuns::of(), Grid::linear(n, WORKGROUP))?;
    sum(ctx, &gradient.rows, Some(&(ranks, pairs.values)), Scale::One, &out)
}

/// The error for the first of `indices` that is out of range; there is one.
fn bad_index(ctx: &mut dyn OpContext, indices: &Tensor, limit: usize) -> Result<()> {
    let rows = RowNumbers { indices, narrow: narrow(ctx, indices, limit)?, limit };
    let summary = ctx.temp(U32, &[5])?;
    ctx.device().fill(summary.address, summary.bytes(), 0)?;
    rows.check(ctx, &summary)?;
    let left = word(ctx, &summary, 4)? as usize;
    let value = number(ctx, indices, indices.len() - left)?;
    Err(Error::InvalidArgument(format!("Index {value} out of range [0, {limit}).")))
}

declare_program! {
    /// Finds the first row that is out of range.
    struct FirstOutOfRange = "segment rows"();
    bindings { rows: U32, summary: Raw("atomic<u32>", 4) }
    params { count: usize, limit: usize }
    shader "segment rows" => .body(include_str!("../../../shaders/segment/rows.wgsl"))
}

declare_program! {
    /// Marks the keys that begin a run of equal keys.
    struct RunHeads = "segment heads"();
    bindings { keys: U32, heads: U32 }
    params { count: usize }
    shader "segment heads" =>
        .body(
            "fn value(i: u32) -> u32 {\n    return select(0u, 1u, i == 0u || load_keys(i) != \
         load_keys(max(i, 1u) - 1u));\n}",
        )
        .map("heads")
}

declare_program! {
    /// Numbers the runs of equal keys, and writes the key of each.
    struct NumberRuns = "segment runs"();
    bindings { keys: U32, starts: U32, ranks: U32, unique: Raw("u32", 4) }
    params { count: usize, words: usize }
    shader "segment runs" => .body(include_str!("../../../shaders/segment/runs.wgsl"))
}
