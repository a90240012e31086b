//! The building blocks of recurrent kernels: values of inputs and outputs in the accumulator's
//! type, slices of them, and products of matrices.
//!
//! Narrow floats are converted on the way in and rounded once on the way out, so that steps of a
//! sequence may start at any element.

use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::contract::Contraction;
use crate::kernels::op::OpContext;
use crate::kernels::scalar;
use crate::kernels::scalar::cast::cast;
use crate::tensor::Tensor;

/// `tensor` in its accumulator's type.
pub fn wide(ctx: &mut dyn OpContext, tensor: &Tensor) -> Result<Tensor> {
    let dtype = tensor.dtype.accumulator();
    if tensor.dtype == dtype || tensor.is_empty() {
        return Ok(Tensor { dtype, ..tensor.clone() });
    }
    let wide = ctx.temp(dtype, &tensor.dims)?;
    cast(ctx.device(), tensor, &wide)?;
    Ok(wide)
}

/// An output that is computed in its accumulator's type.
pub struct Output {
    /// The values in that type.
    pub wide: Tensor,
    output: Tensor,
}

impl Output {
    /// Allocates output `i`.
    pub fn new(ctx: &mut dyn OpContext, i: usize, dtype: DType, dims: &[usize]) -> Result<Self> {
        let output = ctx.output(i, dtype, dims)?;
        let real = dtype.accumulator();
        let wide = if dtype == real { output.clone() } else { ctx.temp(real, dims)? };
        Ok(Self { wide, output })
    }

    /// Rounds the values to the output's type.
    pub fn finish(&self, ctx: &mut dyn OpContext) -> Result<()> {
        if self.output.dtype == self.wide.dtype || self.output.is_empty() {
            return Ok(());
        }
        cast(ctx.device(), &self.wide, &self.output)
    }

    /// Rounds values of the tensor `from`, beginning at its element `at`, to the output.
    pub fn take(&self, ctx: &mut dyn OpContext, from: &Tensor, at: usize) -> Result<()> {
        if self.output.is_empty() {
            return Ok(());
        }
        let address = from.address + (at * from.dtype.size()) as u64;
        let part = Tensor::new(from.dtype, &self.output.dims, address);
        if self.output.dtype == part.dtype {
            return ctx.device().copy(self.output.address, part.address, part.bytes());
        }
        cast(ctx.device(), &part, &self.output)
    }

    /// Fills the values with zeros.
    pub fn clear(&self, ctx: &dyn OpContext) -> Result<()> {
        clear(ctx, &self.wide)
    }
}

/// Computes `c` as the scalar op `op` of the elements of `a` and `b`, one of which may be `c`.
pub fn combine(ctx: &dyn OpContext, op: &str, a: &Tensor, b: &Tensor, c: &Tensor) -> Result<()> {
    let row = scalar::find(op).expect("a row of the tables");
    let [a, b, c] = [a, b, c].map(|t| t.reshaped(&[t.len()]));
    scalar::kernel::signature(row, c.dtype, &[c.dtype; 2], &[], |program| {
        program.run(ctx.device(), &[a, b], &[c], &[])
    })
}

/// Fills a tensor with zeros.
pub fn clear(ctx: &dyn OpContext, tensor: &Tensor) -> Result<()> {
    if tensor.is_empty() { Ok(()) } else { ctx.device().fill(tensor.address, tensor.bytes(), 0) }
}

/// Rows `first` to `first + rows` of an f32 tensor seen as a matrix of `columns`.
pub fn rows(tensor: &Tensor, first: usize, rows: usize, columns: usize) -> Tensor {
    Tensor::new(DType::F32, &[rows, columns], tensor.address + 4 * (first * columns) as u64)
}

/// Computes `c = a b`, matrices of f32; a and b may each be given transposed.
pub fn product(
    ctx: &mut dyn OpContext,
    a: &Tensor,
    a_turned: bool,
    b: &Tensor,
    b_turned: bool,
    c: &Tensor,
) -> Result<()> {
    let [m, n] = c.dims[..] else { unreachable!("a matrix") };
    let k = a.dims[usize::from(!a_turned)];
    debug_assert_eq!(k, b.dims[usize::from(b_turned)]);
    Contraction::product([m, k, n], [a, b, c]).transposed([a_turned, b_turned]).enqueue(ctx)
}
