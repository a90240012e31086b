//! DynamicStitch: rows of several tensors placed by index vectors. The indices are in host memory, so the host resolves which row
//! wins and the device runs one gather.

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
    let mut sources: Vec<i32> = Vec::new();
    let mut first = 0;
    for (i, (t, x)) in indices.iter().zip(&data).enumerate() {
        require!(
            x.dims.starts_with(&t.dims),
            "data[{i}].shape = {} does not start with indices[{i}].shape = {}",
            shape(&x.dims),
            shape(&t.dims)
        );
        require!(
            x.dims[t.dims.len()..] == slice[..],
            "Need data[0].shape[{}:] = data[{i}].shape[{}:], got data[0].shape = {}, data[{i}].shape = {}, \
             indices[0].shape = {}, indices[{i}].shape = {}",
            indices[0].dims.len(),
            t.dims.len(),
            shape(&data[0].dims),
            shape(&x.dims),
            shape(&indices[0].dims),
            shape(&t.dims)
        );
        let list = t.values::<i32>();
        for (row, at) in list.iter().enumerate() {
            require!(*at >= 0, "indices[{i}] contains {at}, which is negative");
            let at = *at as usize;
            if sources.len() <= at {
                sources.resize(at + 1, -1);
            }
            // Later pairs win, and later rows of a pair. Rows that nobody names are zero: -1 is out of range.
            sources[at] = (first + row) as i32;
        }
        first += list.len();
    }
    let mut out = Dims::from_slice(&[sources.len()]);
    out.extend_from_slice(&slice);
    let dst = ctx.output(0, data[0].dtype, &out)?;
    if dst.is_empty() {
        return Ok(());
    }
    let inner: usize = slice.iter().product();
    let rows = ctx.temp(data[0].dtype, &[first, inner])?;
    let mut at = rows.address;
    for x in &data {
        ctx.device().copy(at, x.address, x.bytes())?;
        at += x.bytes();
    }
    let order = ctx.temp(DType::I32, &[sources.len()])?;
    ctx.device().upload(order.address, bytemuck::cast_slice(&sources))?;
    let indices = Indices::new(&order, &[first])?;
    Gather { batch: 1, outer: 1, count: sources.len(), inner }.enqueue(ctx.device(), &rows, &indices, &dst)
}
