//! SegmentSum, SegmentMean, SegmentProd, SegmentMin and SegmentMax: rows reduced by ascending
//! segment ids. `sparse` has the ops that take rows by their indices.
//!
//! The number of segments follows from the last id, which only the device knows: these ops wait for
//! it. Since the same wait can check the ids, they also refuse ids that are not sorted, as
//! TensorFlow's CPU kernels do; with its GPU kernels the result is then undefined.

mod bincount;
pub mod reduce;
mod scale;
mod sparse;

use super::op::{Kernel, OpContext};
use super::registry::{Registry, WAITS_FOR_SIZE};
use crate::device::{Binding, Grid, declare_program};
use crate::dtype::types::INDEX;
use crate::dtype::{
    DType::{self, *},
    types,
};
use crate::error::Result;
use crate::kernels::movement::checked_product;
use crate::require;
use crate::shader::{Raw, Shader, WORKGROUP};
use crate::tensor::{Dims, HostTensor, Tensor};
use reduce::{Fold, Segments};
use scale::{Scale, rescale};
use sparse::RowNumbers;

const TYPES: &[DType] = types::FLOATS;

/// One op. Segments without rows are 0, for products 1.
struct Row {
    op: &'static str,
    fold: Fold,
    scale: Scale,
}

const ROWS: &[Row] = &[
    Row { op: "SegmentMax", fold: Fold::Max, scale: Scale::One },
    Row { op: "SegmentMean", fold: Fold::Sum, scale: Scale::Mean },
    Row { op: "SegmentMin", fold: Fold::Min, scale: Scale::One },
    Row { op: "SegmentProd", fold: Fold::Prod, scale: Scale::One },
    Row { op: "SegmentSum", fold: Fold::Sum, scale: Scale::One },
];

/// Adds the family's ops.
pub fn register(registry: &mut Registry) {
    for row in ROWS {
        registry
            .op(row.op)
            .types("T", TYPES)
            .types("Tindices", INDEX)
            .note(WAITS_FOR_SIZE)
            .kernel(move |_| Ok(Segment { row }));
    }
    sparse::register(registry);
    bincount::register(registry);
}

/// Every shader variant.
pub fn shaders() -> Vec<Shader> {
    let mut all = reduce::shaders();
    all.push(CheckIds::shader());
    all.extend(scale::shaders());
    all.extend(sparse::shaders());
    all.extend(bincount::shaders());
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
        require!(
            ids.len() == data.dims[0],
            "segment_ids should be the same size as dimension 0 of input."
        );
        let mut dims = Dims::from_slice(&data.dims);
        let narrow = ctx.temp(U32, &[ids.len()])?;
        dims[0] = if ids.is_empty() { 0 } else { segments(ctx, &ids, &narrow, None)? };
        checked_product(&dims)?;
        let Some(out) = ctx.some_output(0, data.dtype, &dims)? else { return Ok(()) };
        let computed = data.dtype.accumulator();
        let direct = computed == data.dtype && self.row.scale == Scale::One;
        let total = if direct { out.clone() } else { ctx.temp(computed, &dims)? };
        self.fill(ctx, &total)?;
        let inner = dims[1..].iter().product();
        Segments { fold: self.row.fold, ids: &narrow, rows: None, data: &data, inner }
            .enqueue(ctx, &total)?;
        if direct { Ok(()) } else { rescale(ctx, self.row.scale, &narrow, &total, &out) }
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
}

/// Checks the ids, narrows them, and returns the number of segments. Waits for the device, and
/// checks in the same wait that `rows` names no row past the last one.
fn segments(
    ctx: &mut dyn OpContext,
    ids: &Tensor,
    narrow: &Tensor,
    rows: Option<&RowNumbers<'_>>,
) -> Result<usize> {
    let count = ctx.device().check_extent(ids.len())?;
    let summary = ctx.temp(U32, &[5])?;
    ctx.device().fill(summary.address, summary.bytes(), 0)?;
    CheckIds {
        numbers: Binding::raw(ids, 4),
        ids: narrow.into(),
        summary: (&summary).into(),
        count,
        words: ids.dtype.size() / 4,
    }
    .enqueue(ctx.device(), &CheckIds::of(), Grid::linear(ids.len(), WORKGROUP))?;
    if let Some(rows) = rows {
        rows.check(ctx, &summary)?;
    }
    let mut host = HostTensor { dtype: U32, dims: summary.dims.clone(), bytes: vec![0; 20] };
    ctx.device().download(summary.address, &mut host.bytes)?;
    let host = host.values::<u32>();
    let last = i64::from(host[2]) | (i64::from(host[3]) << 32);
    require!(last >= 0, "segment ids must be >= 0");
    require!(host[0] == 0, "segment ids are not increasing");
    require!(host[1] == 0, "segment ids must be >= 0");
    if let (Some(rows), left @ 1..) = (rows, host[4]) {
        return rows.error(ctx, ids.len() - left as usize);
    }
    // Ids are narrowed to 32 bits.
    ctx.device().check_extent(last as usize + 1)?;
    Ok(last as usize + 1)
}

declare_program! {
    /// Finds the properties of segment ids that the host needs, and narrows the ids to 32 bits.
    struct CheckIds = "segment check"();
    bindings { numbers: Raw("u32", 4), ids: U32, summary: U32 }
    params { count: u32, words: usize }
    shader "segment check" => .body(include_str!("../../../shaders/segment/check.wgsl"))
}
