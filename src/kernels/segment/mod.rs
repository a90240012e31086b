//! SegmentSum, SegmentMean, SegmentProd, SegmentMin and SegmentMax: rows reduced by ascending segment ids.
//!
//! The number of segments is the last id, which the device alone knows: these ops wait for it. As that tells more for nothing, they also refuse
//! ids that are not sorted, as TensorFlow's CPU does; its GPU kernels leave the result open then.

pub mod reduce;

use smallvec::smallvec;

use super::op::{Kernel, OpContext};
use super::registry::Registry;
use super::sort::buckets::bounds;
use crate::device::{Binding, Grid, Key, Params, Program};
use crate::dtype::DType::{self, *};
use crate::dtype::types::INDEX;
use crate::error::Result;
use crate::kernels::movement::checked_product;
use crate::require;
use crate::shader::{Shader, WORKGROUP};
use crate::tensor::{Dims, HostTensor, Tensor};
use reduce::{Fold, Segments};

const TYPES: &[DType] = &[F32, F16, BF16, F64];

/// One op. Segments without rows are 0, of products 1.
struct Row {
    op: &'static str,
    fold: Fold,
    mean: bool,
}

const ROWS: &[Row] = &[
    Row { op: "SegmentMax", fold: Fold::Max, mean: false },
    Row { op: "SegmentMean", fold: Fold::Sum, mean: true },
    Row { op: "SegmentMin", fold: Fold::Min, mean: false },
    Row { op: "SegmentProd", fold: Fold::Prod, mean: false },
    Row { op: "SegmentSum", fold: Fold::Sum, mean: false },
];

/// Adds the family's ops.
pub fn register(registry: &mut Registry) {
    for row in ROWS {
        registry.op(row.op).types("T", TYPES).types("Tindices", INDEX).kernel(move |_| Ok(Segment { row }));
    }
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let mut all = reduce::shaders();
    all.push(check_shader());
    for dtype in TYPES {
        all.extend([finish_shader(*dtype, true), finish_shader(*dtype, false)]);
    }
    all
}

/// Inputs: data (0) and segment_ids (1).
struct Segment {
    row: &'static Row,
}

impl Kernel for Segment {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (data, ids) = (ctx.input(0)?, ctx.input(1)?);
        require!(data.rank() >= 1, "input must be at least rank 1");
        require!(ids.rank() == 1, "segment_ids should be a vector.");
        require!(ids.len() == data.dims[0], "segment_ids should be the same size as dimension 0 of input.");
        let mut dims = Dims::from_slice(&data.dims);
        let narrow = ctx.temp(U32, &[ids.len()])?;
        dims[0] = if ids.is_empty() { 0 } else { segments(ctx, &ids, &narrow)? };
        checked_product(&dims)?;
        let out = ctx.output(0, data.dtype, &dims)?;
        if out.is_empty() {
            return Ok(());
        }
        let computed = Segments::accumulator(data.dtype);
        let direct = computed == data.dtype && !self.row.mean;
        let total = if direct { out.clone() } else { ctx.temp(computed, &dims)? };
        self.fill(ctx, &total)?;
        let inner = dims[1..].iter().product();
        Segments { fold: self.row.fold, ids: &narrow, rows: None, data: &data, inner }.enqueue(ctx, &total)?;
        if direct { Ok(()) } else { self.finish(ctx, &narrow, &total, &out, inner) }
    }
}

impl Segment {
    fn fill(&self, ctx: &dyn OpContext, total: &Tensor) -> Result<()> {
        let one = if total.dtype == F64 { 1f64.to_bits() } else { u64::from(1f32.to_bits()) };
        match (self.row.fold, total.dtype) {
            (Fold::Prod, F64) => {
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&one.to_ne_bytes());
                bytes[8..].copy_from_slice(&one.to_ne_bytes());
                super::movement::remap::fill_element(ctx.device(), total, &bytes)
            }
            (Fold::Prod, _) => ctx.device().fill(total.address, total.bytes(), one as u32),
            _ => ctx.device().fill(total.address, total.bytes(), 0),
        }
    }

    /// Divides means by the number of rows, and rounds to the output's type.
    fn finish(&self, ctx: &mut dyn OpContext, ids: &Tensor, total: &Tensor, out: &Tensor, inner: usize) -> Result<()> {
        let (dtype, mean) = (out.dtype, self.row.mean);
        let bounds = if mean { bounds(ctx, ids, out.dims[0])? } else { total.clone() };
        ctx.device().enqueue(&Program {
            key: Key::new("segment finish").dtype(dtype).number(u32::from(mean)),
            shader: &|| finish_shader(dtype, mean),
            bindings: smallvec![total.into(), Binding::raw(&bounds, 4), out.into()],
            params: Params::new().u32(out.len()).u32(inner),
            grid: Grid::map(out.len(), dtype),
        })
    }
}

/// Checks the ids, narrows them, and returns the number of segments. Waits for the device.
fn segments(ctx: &mut dyn OpContext, ids: &Tensor, narrow: &Tensor) -> Result<usize> {
    let count = ctx.device().check_extent(ids.len())?;
    let summary = ctx.temp(U32, &[4])?;
    ctx.device().fill(summary.address, summary.bytes(), 0)?;
    ctx.device().enqueue(&Program {
        key: Key::new("segment check"),
        shader: &check_shader,
        bindings: smallvec![Binding::raw(ids, 4), narrow.into(), (&summary).into()],
        params: Params::new().u32(count).u32(ids.dtype.size() / 4),
        grid: Grid::linear(ids.len(), WORKGROUP),
    })?;
    let mut host = HostTensor { dtype: U32, dims: summary.dims.clone(), bytes: vec![0; 16] };
    ctx.device().download(summary.address, &mut host.bytes)?;
    let host = host.values::<u32>();
    let last = i64::from(host[2]) | (i64::from(host[3]) << 32);
    require!(last >= 0, "segment ids must be >= 0");
    require!(host[0] == 0, "segment ids are not increasing");
    require!(host[1] == 0, "segment ids must be >= 0");
    // Ids are narrowed to 32 bits.
    ctx.device().check_extent(last as usize + 1)?;
    Ok(last as usize + 1)
}

fn check_shader() -> Shader {
    Shader::new("segment check")
        .bind_raw("numbers", "u32", 4)
        .bind("ids", U32)
        .bind("summary", U32)
        .u32s(&["count", "words"])
        .body(include_str!("../../../shaders/segment/check.wgsl"))
}

fn finish_shader(dtype: DType, mean: bool) -> Shader {
    let computed = Segments::accumulator(dtype);
    let value = if mean {
        "    let s = p.off_bounds + i / p.inner;\n    let rows = bounds[s + 1u] - bounds[s];\n    \
         return load_total(i) / VALUE(max(rows, 1u));"
    } else {
        "    return load_total(i);"
    };
    let value = value.replace("VALUE", computed.value());
    Shader::new(format!("segment finish {dtype}"))
        .bind("total", computed)
        .bind_raw("bounds", "u32", 4)
        .bind("out", dtype)
        .u32s(&["count", "inner"])
        .body(&format!("fn value(i: u32) -> {} {{\n{value}\n}}", computed.value()))
        .map("out")
}
