//! Ops that are products of two operands: matrix products and convolutions.

use super::epilogue::Bound;
use super::plan::Plan;
use crate::device::Profile;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernels::op::OpContext;
use crate::tensor::{Dims, Tensor};

/// An op of two operands that takes an epilogue.
pub trait Product: Send + Sync {
    /// The result's shape, or TensorFlow's error.
    fn shape(&self, a: &[usize], b: &[usize]) -> Result<Dims>;

    /// The result's type for operands of type `a`, without an epilogue.
    fn result(&self, a: DType) -> DType {
        a
    }

    /// The dimension of the channels in a result of shape `dims`.
    fn channel(&self, dims: &[usize]) -> usize;

    /// The plan for a result that is not empty, from operands a and b to the result. An epilogue
    /// needs operands that are not empty.
    fn plan<'e>(
        &self,
        profile: &Profile,
        operands: [&Tensor; 3],
        epilogue: Option<Bound<'e>>,
    ) -> Result<Plan<'e>>;

    /// The op without an epilogue, from inputs 0 and 1.
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        let (a, b) = (ctx.input(0)?, ctx.input(1)?);
        let c = ctx.output(0, self.result(a.dtype), &self.shape(&a.dims, &b.dims)?)?;
        if c.is_empty() {
            return Ok(());
        }
        self.plan(&ctx.device().profile(), [&a, &b, &c], None)?.enqueue(ctx)
    }
}
