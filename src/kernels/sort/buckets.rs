//! Positions grouped by a small number that each has: the sort behind partitions, ragged rows and
//! weighted counts.

use super::radix::{self, bits_below};
use crate::device::{Binding, Grid, declare_program};
use crate::dtype::{
    DType::{self, *},
    types,
};
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::shader::{Raw, Shader, WORKGROUP};
use crate::tensor::{HostTensor, Tensor};

/// Index types that bucket numbers may have.
const INDICES: &[DType] = types::INDEX;

/// Positions grouped by bucket, in their order within each. Numbers out of range form one more
/// bucket at the end.
#[derive(Debug)]
pub struct Buckets {
    /// The buckets' numbers, ascending (uint32).
    pub keys: Tensor,
    /// The positions, bucket after bucket (uint32).
    pub positions: Tensor,
    /// Where each bucket starts in `positions` (uint32): one element for each bucket, then the end
    /// of the last one that is in range.
    pub bounds: Tensor,
    buckets: usize,
}

impl Buckets {
    /// Groups the positions of `numbers`, an int32 or int64 tensor that is not empty, into
    /// `buckets` buckets.
    pub fn of(ctx: &mut dyn OpContext, numbers: &Tensor, buckets: usize) -> Result<Self> {
        Self::of_rows(ctx, numbers, numbers.len(), buckets)
    }

    /// The same for rows of `per_row` numbers, each of which has `size` buckets of its own.
    pub fn of_rows(
        ctx: &mut dyn OpContext,
        numbers: &Tensor,
        per_row: usize,
        size: usize,
    ) -> Result<Self> {
        let buckets = numbers.len() / per_row * size;
        let keys = keys(ctx, numbers, per_row, size)?;
        let sorted = radix::sort(ctx, &keys, None, bits_below(buckets + 1))?;
        let bounds = bounds(ctx, &sorted.keys, buckets)?;
        Ok(Self { keys: sorted.keys, positions: sorted.values, bounds, buckets })
    }

    /// The bounds on the host. Waits for the device.
    pub fn host_bounds(&self, ctx: &dyn OpContext) -> Result<Vec<u32>> {
        let mut host = HostTensor {
            dtype: U32,
            dims: self.bounds.dims.clone(),
            bytes: vec![0; 4 * (self.buckets + 1)],
        };
        ctx.device().download(self.bounds.address, &mut host.bytes)?;
        Ok(host.values())
    }
}

/// The int32 or int64 `numbers` (not empty) as uint32. A negative number, or one beyond `limit`,
/// becomes `limit`.
pub fn narrow(ctx: &mut dyn OpContext, numbers: &Tensor, limit: usize) -> Result<Tensor> {
    keys(ctx, numbers, numbers.len(), limit)
}

fn keys(ctx: &mut dyn OpContext, numbers: &Tensor, per_row: usize, size: usize) -> Result<Tensor> {
    let keys = ctx.temp(U32, &[numbers.len()])?;
    let count = ctx.device().check_extent(numbers.len())?;
    let last = ctx.device().check_extent(numbers.len() / per_row * size)?;
    BucketKeys {
        numbers: Binding::raw(numbers, 4),
        keys: (&keys).into(),
        count,
        limit: size,
        per_row,
        last,
    }
    .enqueue(
        ctx.device(),
        &BucketKeys::of(numbers.dtype),
        Grid::linear(numbers.len(), WORKGROUP),
    )?;
    Ok(keys)
}

/// Where the run of each number up to `segments` starts in the sorted uint32 tensor `keys`:
/// `segments` + 1 bounds.
pub fn bounds(ctx: &mut dyn OpContext, keys: &Tensor, segments: usize) -> Result<Tensor> {
    let bounds = ctx.temp(U32, &[segments + 1])?;
    Bounds { sorted: keys.into(), bounds: (&bounds).into(), count: segments + 1, keys: keys.len() }
        .enqueue(ctx.device(), &Bounds::of(), Grid::linear(segments + 1, WORKGROUP))?;
    Ok(bounds)
}

/// Every shader variant of this file.
pub fn shaders() -> Vec<Shader> {
    let mut all = vec![Bounds::shader()];
    all.extend(INDICES.iter().map(|t| BucketKeys::shader(*t)));
    all
}

/// WGSL for a number below `p.limit`, or the limit itself, from the raw words `numbers` of an index
/// type. A negative number is large as an unsigned one, so one comparison checks both ends.
pub fn clamped(dtype: DType) -> &'static str {
    if dtype.size() == 8 {
        "fn clamped(i: u32) -> u32 {\n    let at = p.off_numbers + 2u * i;\n    return \
         select(p.limit, min(numbers[at], p.limit), numbers[at + 1u] == 0u);\n}\n"
    } else {
        "fn clamped(i: u32) -> u32 {\n    return min(numbers[p.off_numbers + i], p.limit);\n}\n"
    }
}

declare_program! {
    /// The bucket of each number, or `last` for numbers out of range.
    struct BucketKeys = "sort bucket keys"(dtype: DType);
    bindings { numbers: Raw("u32", 4), keys: U32 }
    params { count: u32, limit: usize, per_row: usize, last: u32 }
    shader format!("sort bucket keys {dtype}") =>
        .body(clamped(dtype))
        .body(
            "fn value(i: u32) -> u32 {\n    let n = clamped(i);\n    return select((i / \
         p.per_row) * p.limit + n, p.last, n == p.limit);\n}",
        )
        .map("keys")
}

declare_program! {
    /// The start of each segment of sorted numbers.
    struct Bounds = "sort bounds"();
    bindings { sorted: U32, bounds: U32 }
    params { count: usize, keys: usize }
    shader "sort bounds" =>
        .body(include_str!("../../../shaders/sort/bounds.wgsl"))
        .map("bounds")
}
