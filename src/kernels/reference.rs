//! Kernels for ops on the reference variables of TensorFlow 1. They are those for ops on resource
//! variables, except that such an op also has the variable as an output.

use crate::error::Result;
use crate::kernels::op::{Kernel, OpContext};

/// A kernel that changes the variable at input 0, which is then output 0.
pub(super) struct Reference<K>(pub K);

impl<K: Kernel> Kernel for Reference<K> {
    fn compute(&self, ctx: &mut dyn OpContext) -> Result<()> {
        self.0.compute(ctx)?;
        ctx.pass_reference()
    }
}
