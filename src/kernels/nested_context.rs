//! A kernel that another kernel runs, on existing tensors instead of a node's.

use smallvec::SmallVec;

use super::op::OpContext;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::tensor::{HostTensor, Tensor};

/// The context of a kernel whose inputs are these tensors. Its outputs are tensors, too, given
/// before or made as temporary memory; none of them is in host memory, and it has no variables.
pub struct NestedContext<'c> {
    ctx: &'c mut dyn OpContext,
    inputs: &'c [Tensor],
    /// The outputs that are given or that the kernel has asked for so far.
    pub outputs: SmallVec<[Option<Tensor>; 4]>,
}

impl<'c> NestedContext<'c> {
    /// A context with these inputs, which takes the memory that it needs from `ctx`.
    pub fn new(ctx: &'c mut dyn OpContext, inputs: &'c [Tensor]) -> Self {
        Self { ctx, inputs, outputs: SmallVec::new() }
    }

    /// The same with `output` as output 0.
    pub fn with_output(ctx: &'c mut dyn OpContext, inputs: &'c [Tensor], output: Tensor) -> Self {
        Self { outputs: SmallVec::from_iter([Some(output)]), ..Self::new(ctx, inputs) }
    }
}

fn refused<T>(what: &str) -> Result<T> {
    Err(Error::Internal(format!("a kernel of given tensors has no {what}")))
}

impl OpContext for NestedContext<'_> {
    fn device(&self) -> &Device {
        self.ctx.device()
    }

    fn num_inputs(&self) -> usize {
        self.inputs.len()
    }

    fn input(&mut self, i: usize) -> Result<Tensor> {
        self.inputs.get(i).cloned().map_or_else(|| refused("input of this number"), Ok)
    }

    fn host_input(&mut self, _: usize) -> Result<HostTensor> {
        refused("input in host memory")
    }

    fn output(&mut self, i: usize, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        if self.outputs.len() <= i {
            self.outputs.resize(i + 1, None);
        }
        if self.outputs[i].is_none() {
            self.outputs[i] = Some(self.ctx.temp(dtype, dims)?);
        }
        match &self.outputs[i] {
            Some(output) if output.dtype == dtype && output.dims[..] == *dims => Ok(output.clone()),
            _ => refused("output of another type or shape"),
        }
    }

    fn forward_or_output(
        &mut self,
        _: &[usize],
        i: usize,
        dtype: DType,
        dims: &[usize],
    ) -> Result<Tensor> {
        self.output(i, dtype, dims)
    }

    fn forward_input(&mut self, _: usize, _: usize, _: &[usize]) -> Result<()> {
        refused("input to forward")
    }

    fn host_output(&mut self, _: usize, _: &HostTensor) -> Result<()> {
        refused("output in host memory")
    }

    fn temp(&mut self, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        self.ctx.temp(dtype, dims)
    }
}
