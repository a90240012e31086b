//! Bincount, DenseBincount and HistogramFixedWidth. Plain counts are atomic additions; weights are
//! added up in the order of the input, after a sort by bin, so that sums of floats are
//! reproducible.

use super::reduce::{Fold, Segments};
use crate::device::{Binding, Grid, declare_program};
use crate::dtype::types::INDEX;
use crate::dtype::{
    DType::{self, *},
    types,
};
use crate::error::Result;
use crate::kernels::movement::{checked_product, shape};
use crate::kernels::op::{OpContext, OpContextExt};
use crate::kernels::registry::Registry;
use crate::kernels::sort::buckets::{Buckets, clamped};
use crate::kernels::sort::search;
use crate::require;
use crate::shader::{Raw, Shader};
use crate::tensor::{HostTensor, Tensor};

const TYPES: &[DType] = &[F32, I32];
const HISTOGRAM: &[DType] = types::FLOATS;
type Compute = fn(&mut dyn OpContext) -> Result<()>;

/// Elements that a workgroup counts.
const BLOCK: usize = 2048;

/// Registers the ops.
pub fn register(r: &mut Registry) {
    r.op("Bincount")
        .types("T", TYPES)
        .host(&["size"])
        .kernel(|_| Ok(|ctx: &mut dyn OpContext| bincount(ctx, false, false)));
    r.op("DenseBincount").types("T", TYPES).types("Tidx", INDEX).host(&["size"]).kernel(|attrs| {
        let binary = attrs.bool("binary_output")?;
        Ok(move |ctx: &mut dyn OpContext| bincount(ctx, true, binary))
    });
    r.op("HistogramFixedWidth")
        .types("T", HISTOGRAM)
        .types("dtype", &[I32])
        .host(&["value_range", "nbins"])
        .kernel(|_| Ok(histogram as Compute));
}

/// Inputs: the numbers (0), size (1, host) and weights (2) or none. Numbers out of range, including
/// negative ones, are dropped, as on TensorFlow's GPUs; its CPU kernel refuses negative ones.
fn bincount(ctx: &mut dyn OpContext, dense: bool, binary: bool) -> Result<()> {
    let size = ctx.host_input(1)?;
    require!(size.dims.is_empty(), "Shape must be rank 0 but is rank {}", size.dims.len());
    let size = size.to_i64()?[0];
    require!(size >= 0, "size ({size}) must be non-negative");
    let (x, weights) = (ctx.input(0)?, ctx.input(2)?);
    if dense {
        require!(x.rank() <= 2, "Shape must be at most rank 2 but is rank {}", x.rank());
        require!(
            weights.is_empty() || weights.dims == x.dims,
            "`weights` must be the same shape as `arr` or a length-0 `Tensor`, in which case it \
             acts as all weights equal to 1. Received {}",
            shape(&weights.dims)
        );
    } else {
        require!(
            weights.is_empty() || weights.len() == x.len(),
            "Input indices and weights must have the same size."
        );
    }
    let rows = if dense && x.rank() == 2 { x.dims[0] } else { 1 };
    let dims = if dense && x.rank() == 2 { vec![rows, size as usize] } else { vec![size as usize] };
    let bins = checked_product(&dims)?;
    let Some(out) = ctx.some_output(0, weights.dtype, &dims)? else { return Ok(()) };
    ctx.device().fill(out.address, out.bytes(), 0)?;
    if x.is_empty() {
        return Ok(());
    }
    ctx.device().check_extent(bins)?;
    let per_row = x.len() / rows;
    if weights.is_empty() || binary {
        return counts(
            ctx,
            &Bins::Numbers { x: &x, per_row, size: size as usize },
            bins,
            &out,
            binary,
        );
    }
    let buckets = Buckets::of_rows(ctx, &x, per_row, size as usize)?;
    Segments {
        fold: Fold::Sum,
        ids: &buckets.keys,
        rows: Some(&buckets.positions),
        data: &weights,
        inner: 1,
    }
    .enqueue(ctx, &out)
}

/// Inputs: values (0), value_range (1, host) and nbins (2, host). NaN is in no bin, as on
/// TensorFlow's GPUs; its CPU kernel refuses it.
fn histogram(ctx: &mut dyn OpContext) -> Result<()> {
    let (range, nbins) = (ctx.host_input(1)?, ctx.host_input(2)?);
    require!(range.dims[..] == [2], "value_range should be a vector of 2 elements.");
    require!(nbins.dims.is_empty(), "nbins should be a scalar.");
    let nbins = ctx.host_i64(2, "nbins")?;
    require!(nbins > 0, "nbins should be a positive number, but got '{nbins}'");
    let range = range.to_f64();
    let ascending = range[0] < range[1];
    require!(
        ascending,
        "value_range should satisfy value_range[0] < value_range[1], but got '[{}, {}]'",
        range[0],
        range[1]
    );
    let x = ctx.input(0)?;
    let out = ctx.output(0, I32, &[nbins as usize])?;
    ctx.device().fill(out.address, out.bytes(), 0)?;
    if x.is_empty() {
        return Ok(());
    }
    let wide = x.dtype == F64;
    let edges = edges(&range, nbins as usize, wide);
    let sorted = ctx.temp(edges.dtype, &edges.dims)?;
    if !sorted.is_empty() {
        ctx.device().upload(sorted.address, &edges.bytes)?;
    }
    let lowest = HostTensor::floats(edges.dtype, &[], &range[..1]);
    let low = ctx.temp(edges.dtype, &[])?;
    ctx.device().upload(low.address, &lowest.bytes)?;
    counts(ctx, &Bins::Edges { x: &x, sorted: &sorted, low: &low }, nbins as usize, &out, false)
}

/// The distance from the start of the range at which each bin but the first begins, rounded up. A
/// comparison with it is equivalent to TensorFlow's division by the width of a bin, which is done
/// in float64.
fn edges(range: &[f64], nbins: usize, wide: bool) -> HostTensor {
    let width =
        if wide { range[1] - range[0] } else { f64::from(range[1] as f32 - range[0] as f32) };
    let step = width / nbins as f64;
    let dtype = if wide { F64 } else { F32 };
    let edge = |i: usize| {
        let bin = i as f64;
        let mut d = if wide { bin * step } else { f64::from((bin * step) as f32) };
        let next = |d: f64, up: bool| match (wide, up) {
            (true, true) => d.next_up(),
            (true, false) => d.next_down(),
            (false, true) => f64::from((d as f32).next_up()),
            (false, false) => f64::from((d as f32).next_down()),
        };
        for _ in 0..4 {
            if d / step < bin {
                d = next(d, true);
            } else if next(d, false) / step >= bin {
                d = next(d, false);
            }
        }
        d
    };
    HostTensor::floats(dtype, &[1, nbins - 1], &(1..nbins).map(edge).collect::<Vec<_>>())
}

/// The bin that an element belongs to.
enum Bins<'a> {
    /// Its number, among the bins of its row.
    Numbers { x: &'a Tensor, per_row: usize, size: usize },
    /// The number of edges at or below its distance from `low`.
    Edges { x: &'a Tensor, sorted: &'a Tensor, low: &'a Tensor },
}

/// Adds to the int32 or float32 tensor `out`, which holds zeros, the number of elements in each
/// bin, or 1 if there are any (`binary`).
fn counts(
    ctx: &mut dyn OpContext,
    of: &Bins<'_>,
    bins: usize,
    out: &Tensor,
    binary: bool,
) -> Result<()> {
    let direct = out.dtype == I32 && !binary;
    let counts = if direct { out.clone() } else { ctx.temp(I32, &[bins])? };
    if !direct {
        ctx.device().fill(counts.address, counts.bytes(), 0)?;
    }
    let (Bins::Numbers { x, .. } | Bins::Edges { x, .. }) = of;
    let count = ctx.device().check_extent(x.len())? as usize;
    let blocks = count.div_ceil(BLOCK);
    let grid = Grid::groups(blocks);
    match of {
        Bins::Numbers { x, per_row, size } => CountNumbers {
            counts: Binding::raw(&counts, 4),
            numbers: Binding::raw(x, 4),
            count,
            blocks,
            bins,
            per_row: *per_row,
            limit: *size,
        }
        .enqueue(ctx.device(), &CountNumbers::of(x.dtype), grid)?,
        Bins::Edges { x, sorted, low } => CountByEdges {
            counts: Binding::raw(&counts, 4),
            x: (*x).into(),
            sorted: (*sorted).into(),
            low: (*low).into(),
            count,
            blocks,
            bins,
            edges: sorted.len(),
            upper: 1,
        }
        .enqueue(ctx.device(), &CountByEdges::of(x.dtype), grid)?,
    }
    if direct {
        return Ok(());
    }
    FinishCounts { counts: (&counts).into(), out: out.into(), count: bins, binary }.enqueue(
        ctx.device(),
        &FinishCounts::of(out.dtype),
        Grid::map(bins, out.dtype),
    )
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let mut all: Vec<_> = INDEX.iter().map(|t| CountNumbers::shader(*t)).collect();
    all.extend(HISTOGRAM.iter().map(|t| CountByEdges::shader(*t)));
    all.extend(TYPES.iter().map(|t| FinishCounts::shader(*t)));
    all
}

declare_program! {
    /// Counts the numbers of each bin.
    struct CountNumbers = "sort count numbers"(dtype: DType);
    bindings { counts: Raw("atomic<u32>", 4), numbers: Raw("u32", 4) }
    params { count: usize, blocks: usize, bins: usize, per_row: usize, limit: usize }
    shader format!("sort count {dtype}") =>
        .body(clamped(dtype))
        .define(
            "BIN",
            "fn bin_of(i: u32) -> u32 {\n    let bin = clamped(i);\n    return select((i / \
         p.per_row) * p.limit + bin, p.bins, bin == p.limit);\n}",
        )
        .body(include_str!("../../../shaders/sort/count.wgsl"))
}

/// The type of the edges between bins.
fn edge_type(dtype: DType) -> DType {
    if dtype == F64 { F64 } else { F32 }
}

declare_program! {
    /// Counts the elements between edges.
    struct CountByEdges = "sort count edges"(dtype: DType);
    bindings {
        counts: Raw("atomic<u32>", 4), x: dtype, sorted: edge_type(dtype), low: edge_type(dtype),
    }
    params { count: usize, blocks: usize, bins: usize, edges: usize, upper: usize }
}

impl CountByEdges {
    fn shader(dtype: DType) -> Shader {
        let edge = edge_type(dtype);
        let shader = Self::declare(format!("sort count {dtype}"), dtype);
        search::declare(shader, edge, edge)
        .define(
            "BIN",
            "fn bin_of(i: u32) -> u32 {\n    let x = load_x(i);\n    let low = load_low(0u);\n    \
             if x <= low {\n        return 0u;\n    }\n    if !(x > low) {\n        return \
             p.bins;\n    }\n    return search(x - low, 0u, p.edges);\n}",
        )
        .body(include_str!("../../../shaders/sort/count.wgsl"))
    }
}

declare_program! {
    /// Counts in the type of the result.
    struct FinishCounts = "sort count finish"(dtype: DType);
    bindings { counts: I32, out: dtype }
    params { count: usize, binary: bool }
    shader format!("sort count finish {dtype}") =>
        .body(&format!(
            "fn value(i: u32) -> {0} {{\n    let n = load_counts(i);\n    return {0}(select(n, \
         min(n, 1), p.binary != 0u));\n}}",
            dtype.value()
        ))
        .map("out")
}
