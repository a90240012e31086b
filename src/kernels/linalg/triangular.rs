//! MatrixTriangularSolve with batches that broadcast, and the BatchMatrixTriangularSolve of old
//! graphs. As on TensorFlow's GPU, zeros on the diagonal are not detected: they give infinities and
//! NaNs.

use super::batch::batch_dims;
use super::number::{NUMBERS, REALS};
use super::program::{Map, MatrixSlice, map};
use super::solve::{Triangle, solve};
use crate::dtype::DType::I32;
use crate::error::Result;
use crate::kernels::op::{Attrs, Kernel, OpContext};
use crate::kernels::registry::Registry;
use crate::layout::{Iteration, broadcast_dims};
use crate::require;
use crate::tensor::{Tensor, shape_text};

/// Registers the ops.
pub fn register(r: &mut Registry) {
    r.op("BatchMatrixTriangularSolve")
        .types("T", REALS)
        .items(&[(0, 2), (1, 2)])
        .kernel(TriangularSolve::new);
    r.op("MatrixTriangularSolve")
        .types("T", NUMBERS)
        .items(&[(0, 2), (1, 2)])
        .kernel(TriangularSolve::new);
}

struct TriangularSolve {
    lower: bool,
    adjoint: bool,
}

impl TriangularSolve {
    fn new(attrs: &dyn Attrs) -> Result<Self> {
        Ok(Self { lower: attrs.bool("lower")?, adjoint: attrs.bool("adjoint")? })
    }
}

impl Kernel for TriangularSolve {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (a, b) = (ctx.input(0)?, ctx.input(1)?);
        require!(a.rank() >= 2, "In[0] ndims must be >= 2: {}", a.rank());
        require!(b.rank() >= 2, "In[1] ndims must be >= 2: {}", b.rank());
        let Ok(batch) = broadcast_dims(batch_dims(&a), batch_dims(&b)) else {
            crate::invalid!(
                "In[0] and In[1] must have compatible batch dimensions: {} vs. {}",
                shape_text(&a.dims),
                shape_text(&b.dims)
            );
        };
        let (n, columns) = (a.dims[a.rank() - 2], a.dims[a.rank() - 1]);
        require!(
            n == columns,
            "In[0] matrices in the last dimensions must be square ({columns} =/= {n})"
        );
        let (rows, cols) = (b.dims[b.rank() - 2], b.dims[b.rank() - 1]);
        require!(
            n == rows,
            "In[0] mismatch In[1] shape: {n} vs. {rows}: {} {} {} {}",
            shape_text(&a.dims),
            shape_text(&b.dims),
            u8::from(self.lower),
            u8::from(self.adjoint)
        );
        let mut dims = batch.clone();
        dims.extend([n, cols]);
        let Some(y) = ctx.some_output(0, b.dtype, &dims)? else { return Ok(()) };
        let count = batch.iter().product::<usize>();
        let right = broadcast(ctx, &b, &batch, n, cols)?;
        let shared = batch_dims(&a).iter().all(|d| *d == 1);
        let left = if shared { a } else { broadcast(ctx, &a, &batch, n, n)? };
        // The map needs a tensor as its second operand, but does not read it.
        let unread = ctx.temp(I32, &[1])?;
        let is_conjugate = self.adjoint && left.dtype.is_complex();
        let conjugate = is_conjugate.then(|| ctx.temp(left.dtype, &left.dims)).transpose()?;
        let device = ctx.device();
        device.check_extent(left.len().max(y.len()))?;
        map(device, Map::Copy, MatrixSlice::dense(&right, n, cols), &unread, 0, &y, n, cols)?;
        let left = if let Some(conjugate) = conjugate {
            map(
                device,
                Map::Conjugate,
                MatrixSlice::dense(&left, n, n),
                &unread,
                0,
                &conjugate,
                n,
                n,
            )?;
            conjugate
        } else {
            left
        };
        let part = MatrixSlice::dense(&left, n, n).transposed(self.adjoint);
        let part = if shared { part.shared() } else { part };
        let triangle = Triangle { upper: self.lower == self.adjoint, unit: false };
        solve(device, part, triangle, MatrixSlice::dense(&y, n, cols), count, n, cols)
    }
}

/// `x` itself if its batch is the whole batch, else its matrices repeated along the dimensions that
/// broadcast.
fn broadcast(
    ctx: &mut dyn OpContext,
    x: &Tensor,
    batch: &[usize],
    rows: usize,
    cols: usize,
) -> Result<Tensor> {
    let count = batch.iter().product::<usize>();
    if x.len() == count * rows * cols {
        return Ok(x.clone());
    }
    let walk = Iteration::over(batch).broadcast(batch_dims(x));
    let mut index = vec![0usize; batch.len()];
    let mut picks = Vec::with_capacity(count);
    for _ in 0..count {
        let at: i64 = index.iter().zip(walk.strides(0)).map(|(i, s)| *i as i64 * s).sum();
        picks.push(at as i32);
        for d in (0..batch.len()).rev() {
            index[d] += 1;
            if index[d] < batch[d] {
                break;
            }
            index[d] = 0;
        }
    }
    let table = ctx.temp(I32, &[count])?;
    let y = ctx.temp(x.dtype, &[count, rows, cols])?;
    let device = ctx.device();
    device.check_extent(y.len())?;
    device.upload(table.address, bytemuck::cast_slice(&picks))?;
    map(device, Map::Pick, MatrixSlice::dense(x, rows, cols), &table, 0, &y, rows, cols)?;
    Ok(y)
}
