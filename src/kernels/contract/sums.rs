//! Products whose terms are added up window by window.

use super::epilogue::Bound;
use super::finish;
use super::plan::ProductPlan;
use crate::dtype::DType;
use crate::kernels::windows::part;
use crate::tensor::Tensor;

/// Sums over windows, added in order in the type that products are computed in, and rounded once.
pub struct Sums {
    /// The sums so far, and those of the next window.
    slices: Tensor,
    added: usize,
}

impl Sums {
    /// Memory for `len` sums of elements of `dtype`.
    pub fn new(plan: &mut ProductPlan<'_>, dtype: DType, len: usize) -> Self {
        Self { slices: plan.temporary(dtype.accumulator(), &[2, len]), added: 0 }
    }

    /// Bytes that the sums bind at once.
    pub fn bytes(dtype: DType, len: usize) -> u64 {
        2 * (len * dtype.accumulator().size()) as u64
    }

    /// The tensor for the next window's sums. The window writes all of it.
    pub fn next(&mut self, plan: &mut ProductPlan<'_>) -> Tensor {
        let len = self.slices.dims[1];
        if self.added > 1 {
            plan.dispatch(finish::dispatch(&self.slices, &part(&self.slices, 0, len), None, true));
        }
        let first = if self.added > 0 { len } else { 0 };
        self.added += 1;
        part(&self.slices, first, len)
    }

    /// Rounds the sums to `y`, with an epilogue. `rows` tells whether vec4s of `y` lie within a row
    /// of columns.
    pub fn finish(
        &self,
        plan: &mut ProductPlan<'_>,
        y: &Tensor,
        epilogue: Option<&Bound<'_>>,
        rows: bool,
    ) {
        let slices = part(&self.slices, 0, self.added.min(2) * self.slices.dims[1]);
        plan.dispatch(finish::dispatch(&slices, y, epilogue, rows));
    }
}
