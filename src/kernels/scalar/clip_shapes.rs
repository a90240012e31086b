//! `ClipByValue` of int32. By TensorFlow's convention such tensors are shapes and the like, which
//! stay in host memory. TensorFlow's GPU kernel is registered with every argument in host memory
//! and computes there; so does this one. Other types are rows.

use super::kernel::output_dims;
use super::row::Row;
use crate::dtype::DType::I32;
use crate::error::Result;
use crate::kernels::op::{Attrs, OpContext};
use crate::kernels::registry::{ON_HOST, Registry};
use crate::tensor::{HostTensor, Tensor};

fn clip(ctx: &mut dyn OpContext, row: &'static Row) -> Result<()> {
    let inputs = [ctx.host_input(0)?, ctx.host_input(1)?, ctx.host_input(2)?];
    let dims = output_dims(row, &inputs.each_ref().map(|t| Tensor::new(t.dtype, &t.dims, 0)))?;
    let [x, low, high] = inputs.each_ref().map(HostTensor::values::<i32>);
    let bound = |b: &[i32], i: usize| if b.len() == 1 { b[0] } else { b[i] };
    let clipped = x.iter().enumerate().map(|(i, v)| (*v).min(bound(&high, i)).max(bound(&low, i)));
    ctx.host_output(0, &HostTensor::i32(&dims, &clipped.collect::<Vec<_>>()))
}

/// Registers the op for int32.
pub fn register(registry: &mut Registry) {
    let row = super::find("ClipByValue").expect("the op has a row");
    registry
        .op(row.op)
        .types("T", &[I32])
        .host(&["t", "clip_value_min", "clip_value_max", "output"])
        .note(ON_HOST)
        .kernel(move |_: &dyn Attrs| Ok(move |ctx: &mut dyn OpContext| clip(ctx, row)));
}
