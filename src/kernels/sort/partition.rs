//! DynamicPartition: rows of a tensor dealt out to outputs by number.

use super::buckets::Buckets;
use super::scan::word;
use crate::dtype::{
    DType::{self, *},
    types, union,
};
use crate::error::{Error, Result};
use crate::kernels::gather::index::Indices;
use crate::kernels::gather::rows::Gather;
use crate::kernels::movement::shape;
use crate::kernels::op::OpContext;
use crate::kernels::registry::{Registry, WAITS_FOR_SIZE};
use crate::require;
use crate::tensor::{Dims, Tensor};

const TYPES: &[DType] = union!(types::INDEX, types::INEXACT);

/// Registers the op.
pub fn register(r: &mut Registry) {
    r.op("DynamicPartition").types("T", TYPES).note(WAITS_FOR_SIZE).kernel(|attrs| {
        let n = attrs.int("num_partitions")? as usize;
        Ok(move |ctx: &mut dyn OpContext| partition(ctx, n))
    });
}

/// Inputs: data (0) and partitions (1, int32). Waits for the device, since the numbers of rows are
/// extents of the outputs. So it can refuse numbers out of range, as TensorFlow's CPU kernel does;
/// TensorFlow's GPU kernel drops such rows.
fn partition(ctx: &mut dyn OpContext, n: usize) -> Result<()> {
    let (data, partitions) = (ctx.input(0)?, ctx.input(1)?);
    require!(
        data.dims.starts_with(&partitions.dims),
        "data.shape must start with partitions.shape, got data.shape = {}, partitions.shape = {}",
        shape(&data.dims),
        shape(&partitions.dims)
    );
    let row = Dims::from_slice(&data.dims[partitions.rank()..]);
    let dims = |rows: usize| [&[rows], &row[..]].concat();
    if partitions.is_empty() {
        for i in 0..n {
            ctx.output(i, data.dtype, &dims(0))?;
        }
        return Ok(());
    }
    let buckets = Buckets::of(ctx, &partitions, n)?;
    let bounds = buckets.host_bounds(ctx)?;
    if bounds[n] as usize != partitions.len() {
        return Err(out_of_range(
            ctx,
            &partitions,
            word(ctx, &buckets.positions, bounds[n] as usize)? as usize,
            n,
        )?);
    }
    for (i, bound) in bounds.windows(2).enumerate() {
        let count = (bound[1] - bound[0]) as usize;
        let out = ctx.output(i, data.dtype, &dims(count))?;
        if out.is_empty() {
            continue;
        }
        let positions =
            Tensor::new(I32, &[count], buckets.positions.address + 4 * u64::from(bound[0]));
        let indices = Indices::new(&positions, &[partitions.len()])?;
        let inner = row.iter().product();
        Gather { batch: 1, outer: 1, count, inner }.enqueue(ctx.device(), &data, &indices, &out)?;
    }
    Ok(())
}

fn out_of_range(ctx: &dyn OpContext, partitions: &Tensor, at: usize, n: usize) -> Result<Error> {
    let value = word(ctx, partitions, at)?.cast_signed();
    let mut rest = at;
    let mut coordinates: Vec<String> = Vec::new();
    for d in partitions.dims.iter().rev() {
        coordinates.insert(0, (rest % d).to_string());
        rest /= d;
    }
    let place =
        if coordinates.is_empty() { String::new() } else { format!("[{}]", coordinates.join(",")) };
    Ok(Error::InvalidArgument(format!("partitions{place} = {value} is not in [0, {n})")))
}
