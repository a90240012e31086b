//! Products of matrices that are parts of tensors.

use crate::error::Result;
use crate::kernels::contract::Contraction;
use crate::kernels::movement::walk::copy_strided;
use crate::kernels::op::OpContext;
use crate::layout::Iteration;
use crate::tensor::Tensor;

/// A matrix whose rows are `stride` elements apart, possibly transposed.
#[derive(Debug, Clone)]
pub struct Matrix {
    tensor: Tensor,
    rows: usize,
    columns: usize,
    stride: usize,
    turned: bool,
}

impl Matrix {
    /// The matrix of `rows` by `columns` elements of `tensor` from element `at` on. It is not
    /// empty.
    pub fn new(tensor: &Tensor, at: usize, rows: usize, columns: usize, stride: usize) -> Self {
        let span = (rows - 1) * stride + columns;
        debug_assert!(at + span <= tensor.len());
        let address = tensor.address + (at * tensor.dtype.size()) as u64;
        Self {
            tensor: Tensor::new(tensor.dtype, &[span], address),
            rows,
            columns,
            stride,
            turned: false,
        }
    }

    /// A whole tensor, as rows of `columns` elements.
    pub fn whole(tensor: &Tensor, columns: usize) -> Self {
        Self::new(tensor, 0, tensor.len() / columns, columns, columns)
    }

    /// Its transpose.
    #[must_use]
    pub fn turned(self) -> Self {
        Self { turned: !self.turned, ..self }
    }

    /// Its elements, with the elements between its rows.
    pub const fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    /// Rows and columns.
    pub const fn extents(&self) -> [usize; 2] {
        if self.turned { [self.columns, self.rows] } else { [self.rows, self.columns] }
    }
}

/// Computes `c = a b`. The elements between the rows of `c` may be overwritten.
pub fn multiply(ctx: &mut dyn OpContext, a: &Matrix, b: &Matrix, c: &Matrix) -> Result<()> {
    if c.turned {
        let [a, b, c] = [b, a, c].map(|matrix| matrix.clone().turned());
        return multiply(ctx, &a, &b, &c);
    }
    let ([m, k], [_, n]) = (a.extents(), b.extents());
    debug_assert_eq!((c.extents(), k), ([m, n], b.extents()[0]));
    Contraction::product([m, k, n], [&a.tensor, &b.tensor, &c.tensor])
        .strided([a.stride, b.stride, c.stride], [a.turned, b.turned])
        .enqueue(ctx)
}

/// Computes `c = a b`, and leaves the elements between the rows of `c` as they are.
pub fn multiply_apart(ctx: &mut dyn OpContext, a: &Matrix, b: &Matrix, c: &Matrix) -> Result<()> {
    if c.rows == 1 || c.stride == c.columns {
        return multiply(ctx, a, b, c);
    }
    // A product of long rows is summed in parts, which are added for all elements of `c`.
    let dense = ctx.temp(c.tensor.dtype, &[c.rows, c.columns])?;
    let own = Matrix { turned: c.turned, ..Matrix::whole(&dense, c.columns) };
    multiply(ctx, a, b, &own)?;
    let walk = Iteration::over(&[c.rows, c.columns])
        .operand(&[c.columns as i64, 1], 0)
        .operand(&[c.stride as i64, 1], 0);
    copy_strided(ctx.device(), &walk, &dense, &c.tensor)
}
