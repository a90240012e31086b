//! Writes to a strided slice of a variable or of a copy of a tensor.

use super::plan::{MemoryType, Move};
use super::remap::Background;
use super::shape;
use super::slice::{Masks, StridedSpec};
use crate::error::{Error, Result};
use crate::kernels::op::{OpContext, VariableUpdate};
use crate::tensor::HostTensor;

/// Whether there is anything to write. Into an empty slice any value goes, of whatever shape.
fn writes(spec: &StridedSpec, value: &[usize]) -> Result<bool> {
    if spec.shape.contains(&0) {
        return Ok(false);
    }
    if value == &spec.shape[..] {
        return Ok(true);
    }
    Err(Error::Unimplemented(format!(
        "sliced l-value shape {} does not match r-value shape {}. Automatic broadcasting not yet \
         implemented.",
        shape(&spec.shape),
        shape(value)
    )))
}

/// ResourceStridedSliceAssign: inputs the variable (0), begin (1), end (2), strides (3) and value
/// (4).
pub fn resource_strided_slice_assign(ctx: &mut dyn OpContext, masks: &Masks) -> Result<()> {
    let value = ctx.input(4)?;
    ctx.update_variable(0, VariableUpdate::Sparse, &mut |ctx, _, variable| {
        let spec = StridedSpec::read(ctx, 1, masks, &variable.dims)?;
        if !writes(&spec, &value.dims)? {
            return Ok(());
        }
        spec.write_into(&variable.dims, Background::Keep).enqueue(ctx.device(), &value, variable)
    })
}

/// TensorStridedSliceUpdate: inputs input (0), begin (1), end (2), strides (3) and value (4).
pub fn tensor_strided_slice_update(
    ctx: &mut dyn OpContext,
    masks: &Masks,
    memory: MemoryType,
) -> Result<()> {
    match memory {
        MemoryType::Device => {
            let (x, value) = (ctx.input(0)?, ctx.input(4)?);
            let spec = StridedSpec::read(ctx, 1, masks, &x.dims)?;
            if !writes(&spec, &value.dims)? {
                return ctx.forward_input(0, 0, &x.dims);
            }
            let dst = ctx.forward_or_output(&[0], 0, x.dtype, &x.dims)?;
            if dst.address != x.address {
                ctx.device().copy(dst.address, x.address, x.bytes())?;
            }
            spec.write_into(&x.dims, Background::Keep).enqueue(ctx.device(), &value, &dst)
        }
        MemoryType::Host => {
            let (x, value) = (ctx.host_input(0)?, ctx.host_input(4)?);
            let spec = StridedSpec::read(ctx, 1, masks, &x.dims)?;
            if !writes(&spec, &value.dims)? {
                return ctx.host_output(0, &x);
            }
            // Which element of the value, counted from 1, each element takes; 0 keeps it.
            let numbers: Vec<i32> = (1..=value.dims.iter().product::<usize>() as i32).collect();
            let numbers = HostTensor::i32(&value.dims, &numbers);
            let taken =
                Move::remap(spec.write_into(&x.dims, Background::ZERO)).of_host(&numbers)?;
            let mut out = x.clone();
            for (i, n) in taken.values::<i32>().into_iter().enumerate() {
                if n > 0 {
                    let from = (n as usize - 1) * 4;
                    out.bytes[i * 4..][..4].copy_from_slice(&value.bytes[from..][..4]);
                }
            }
            ctx.host_output(0, &out)
        }
    }
}
