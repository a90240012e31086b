//! The operands that the ops check: batches of square matrices.

use crate::error::{Error, Result};
use crate::require;
use crate::tensor::Tensor;

/// A batch of matrices: the number of matrices, rows, columns.
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    /// Matrices.
    pub count: usize,
    /// Rows of each.
    pub rows: usize,
    /// Columns of each.
    pub cols: usize,
}

impl Batch {
    /// The matrices of a tensor of rank 2 or more.
    pub fn of(t: &Tensor) -> Result<Self> {
        let [.., rows, cols] = t.dims[..] else {
            return Err(Error::InvalidArgument(format!(
                "Input tensor 0 must have rank >= 2, got {}",
                t.rank()
            )));
        };
        Ok(Self { count: batch_dims(t).iter().product(), rows, cols })
    }

    /// The same, which must be square.
    pub fn square(t: &Tensor) -> Result<Self> {
        let batch = Self::of(t)?;
        require!(batch.rows == batch.cols, "Input matrix must be square.");
        Ok(batch)
    }
}

/// The dims before the last two.
pub fn batch_dims(t: &Tensor) -> &[usize] {
    &t.dims[..t.rank() - 2]
}
