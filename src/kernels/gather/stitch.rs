//! DynamicStitch: rows of several tensors placed by index vectors. The indices are in host memory,
//! so the host resolves which row wins and the device runs one gather.

use super::index::Indices;
use super::rows::Gather;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::movement::shape;
use crate::kernels::op::OpContext;
use crate::require;
use crate::tensor::Dims;

/// DynamicStitch of `n` pairs: inputs indices (0..n, host) and data (n..2n).
pub fn stitch(ctx: &mut dyn OpContext, n: usize) -> Result<()> {
    require!(n > 0, "DynamicStitch needs at least one pair");
    let data = (n..2 * n).map(|i| ctx.input(i)).collect::<Result<Vec<_>>>()?;
    let indices = (0..n).map(|i| ctx.host_input(i)).collect::<Result<Vec<_>>>()?;
    let slice = data[0].dims.get(indices[0].dims.len()..).unwrap_or_default().to_vec();
    let mut rows = 0;
    for (i, (t, x)) in indices.iter().zip(&data).enumerate() {
        require!(
            x.dims.starts_with(&t.dims),
            "data[{i}].shape = {} does not start with indices[{i}].shape = {}",
            shape(&x.dims),
            shape(&t.dims)
        );
        require!(
            x.dims[t.dims.len()..] == slice[..],
            "Need data[0].shape[{}:] = data[{i}].shape[{}:], got data[0].shape = {}, \
             data[{i}].shape = {}, indices[0].shape = {}, indices[{i}].shape = {}",
            indices[0].dims.len(),
            t.dims.len(),
            shape(&data[0].dims),
            shape(&x.dims),
            shape(&indices[0].dims),
            shape(&t.dims)
        );
        for at in t.values::<i32>() {
            require!(at >= 0, "indices[{i}] contains {at}, which is negative");
            rows = rows.max(at as usize + 1);
        }
    }
    let mut out = Dims::from_slice(&[rows]);
    out.extend_from_slice(&slice);
    // The device's memory is allocated first, since it may lack room for the index, then the
    // host's.
    let Some(dst) = ctx.some_output(0, data[0].dtype, &out)? else { return Ok(()) };
    let order = ctx.temp(DType::I32, &[rows])?;
    // Later pairs win, and later rows of a pair. Rows that no index names are zero: -1 is out of
    // range.
    let (mut sources, mut first) = (vec![-1_i32; rows], 0);
    for t in &indices {
        for (row, at) in t.values::<i32>().into_iter().enumerate() {
            sources[at as usize] = (first + row) as i32;
        }
        first += t.dims.iter().product::<usize>();
    }
    let inner: usize = slice.iter().product();
    let rows = ctx.temp(data[0].dtype, &[first, inner])?;
    let mut at = rows.address;
    for x in &data {
        ctx.device().copy(at, x.address, x.bytes())?;
        at += x.bytes();
    }
    ctx.device().upload(order.address, bytemuck::cast_slice(&sources))?;
    let indices = Indices::new(&order, &[first])?;
    Gather { batch: 1, outer: 1, count: sources.len(), inner }.enqueue(
        ctx.device(),
        &rows,
        &indices,
        &dst,
    )
}
