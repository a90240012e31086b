//! UnsortedSegmentSum, Prod, Max and Min: rows of data reduced by segment id. If segments have many
//! rows, the rows are sorted first.

use super::chains::{self, Fold};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::gather::index::Indices;
use crate::kernels::movement::remap::{Background, fill_element};
use crate::kernels::movement::walk::window_limit;
use crate::kernels::movement::{checked_product, shape};
use crate::kernels::op::{Kernel, OpContext, OpContextExt};
use crate::kernels::segment::reduce::{self, Segments};
use crate::kernels::sort::buckets::Buckets;
use crate::require;
use crate::tensor::{Dims, HostTensor, Tensor};

/// Rows are sorted if there are at least this many rows, and at least this many for each segment on
/// average.
const MANY: usize = 2048;
const LONG: usize = 8;

/// A reduction: its fold and the value of an empty segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reduction {
    /// Sums; empty segments are 0.
    Sum,
    /// Products; empty segments are 1.
    Prod,
    /// Maxima; empty segments are the type's lowest value.
    Max,
    /// Minima; empty segments are the type's highest value.
    Min,
}

/// The ops.
pub const UNSORTED: &[(&str, Reduction)] = &[
    ("UnsortedSegmentSum", Reduction::Sum),
    ("UnsortedSegmentProd", Reduction::Prod),
    ("UnsortedSegmentMax", Reduction::Max),
    ("UnsortedSegmentMin", Reduction::Min),
];

impl Reduction {
    const fn fold(self) -> Fold {
        match self {
            Self::Sum => Fold::Add,
            Self::Prod => Fold::Mul,
            Self::Max => Fold::Max,
            Self::Min => Fold::Min,
        }
    }

    /// The element of an empty segment.
    fn identity(self, dtype: DType) -> Vec<u8> {
        let sign = if self == Self::Max { -1.0 } else { 1.0 };
        match (self, dtype) {
            (Self::Sum, _) => vec![0; dtype.size()],
            (Self::Prod, DType::I32) => 1i32.to_ne_bytes().to_vec(),
            (Self::Prod, DType::I64) => 1i64.to_ne_bytes().to_vec(),
            (Self::Prod, _) => HostTensor::floats(dtype, &[], &[1.0]).bytes,
            (Self::Max, DType::I32) => i32::MIN.to_ne_bytes().to_vec(),
            (Self::Max, DType::I64) => i64::MIN.to_ne_bytes().to_vec(),
            (Self::Min, DType::I32) => i32::MAX.to_ne_bytes().to_vec(),
            (Self::Min, DType::I64) => i64::MAX.to_ne_bytes().to_vec(),
            (_, DType::F16) => {
                HostTensor::floats(dtype, &[], &[sign * f64::from(half::f16::MAX)]).bytes
            }
            (_, DType::BF16) => {
                HostTensor::floats(dtype, &[], &[sign * f64::from(half::bf16::MAX)]).bytes
            }
            (_, DType::F64) => HostTensor::floats(dtype, &[], &[sign * f64::MAX]).bytes,
            (_, _) => HostTensor::floats(dtype, &[], &[sign * f64::from(f32::MAX)]).bytes,
        }
    }
}

/// Inputs data (0), segment_ids (1) and num_segments (2, host). Rows with ids out of range are
/// dropped.
pub struct Unsorted {
    /// The reduction.
    pub reduction: Reduction,
}

impl Kernel for Unsorted {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (data, ids) = (ctx.input(0)?, ctx.input(1)?);
        let segments = ctx.host_i64(2, "num_segments")?;
        require!(segments >= 0, "Input num_segments == {segments} must not be negative.");
        require!(
            data.dims.starts_with(&ids.dims),
            "data.shape = {} does not start with segment_ids.shape = {}",
            shape(&data.dims),
            shape(&ids.dims)
        );
        let mut out = Dims::from_slice(&[segments as usize]);
        out.extend_from_slice(&data.dims[ids.rank()..]);
        checked_product(&out)?;
        let Some(dst) = ctx.some_output(0, data.dtype, &out)? else { return Ok(()) };
        match Background::element(&self.reduction.identity(data.dtype)) {
            Background::Element(bytes) => fill_element(ctx.device(), &dst, &bytes)?,
            Background::Keep => {}
        }
        let fits = data.bytes().max(dst.bytes()) <= window_limit(ctx.device());
        if let Some(fold) = self.sorted(&data, ids.len(), segments as usize).filter(|_| fits) {
            let grouped = Buckets::of(ctx, &ids, segments as usize)?;
            let inner = out[1..].iter().product();
            return Segments {
                fold,
                ids: &grouped.keys,
                rows: Some(&grouped.positions),
                data: &data,
                inner,
            }
            .enqueue(ctx, &dst);
        }
        chains::Scatter {
            fold: self.reduction.fold(),
            indices: &Indices::new(&ids, &[segments as usize])?,
            count: ids.len(),
            updates: &data,
            inner: out[1..].iter().product(),
        }
        .enqueue(ctx, &dst)
    }
}

impl Unsorted {
    /// The fold of rows sorted by segment, if that pays. Sorting takes several dispatches, but the
    /// time of a chain grows with the rows of a segment.
    fn sorted(&self, data: &Tensor, count: usize, segments: usize) -> Option<reduce::Fold> {
        let long = count >= MANY && count / segments >= LONG;
        let fold = match self.reduction {
            Reduction::Sum => reduce::Fold::Sum,
            Reduction::Prod => reduce::Fold::Prod,
            Reduction::Max => reduce::Fold::Max,
            Reduction::Min => reduce::Fold::Min,
        };
        (long && matches!(data.dtype, DType::F32 | DType::F64)).then_some(fold)
    }
}
