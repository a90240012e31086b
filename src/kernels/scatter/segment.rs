//! UnsortedSegmentSum, Prod, Max and Min: rows of data reduced by segment id.

use super::chains::{self, Fold};
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::gather::index::Indices;
use crate::kernels::movement::remap::{Background, fill_element};
use crate::kernels::movement::{checked_product, shape};
use crate::kernels::op::{Kernel, OpContext, OpContextExt};
use crate::require;
use crate::tensor::{Dims, HostTensor};

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
            (_, DType::F16) => HostTensor::floats(dtype, &[], &[sign * f64::from(half::f16::MAX)]).bytes,
            (_, DType::BF16) => HostTensor::floats(dtype, &[], &[sign * f64::from(half::bf16::MAX)]).bytes,
            (_, DType::F64) => HostTensor::floats(dtype, &[], &[sign * f64::MAX]).bytes,
            (_, _) => HostTensor::floats(dtype, &[], &[sign * f64::from(f32::MAX)]).bytes,
        }
    }
}

/// Inputs data (0), segment_ids (1) and num_segments (2, host). Rows with ids out of range are dropped.
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
        let dst = ctx.output(0, data.dtype, &out)?;
        if dst.is_empty() {
            return Ok(());
        }
        match Background::element(&self.reduction.identity(data.dtype)) {
            Background::Element(bytes) => fill_element(ctx.device(), &dst, &bytes)?,
            Background::Keep => {}
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
