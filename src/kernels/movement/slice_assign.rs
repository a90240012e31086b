//! Writes to a strided slice of a variable or of a copy of a tensor.

use super::plan::{MemoryType, Move};
use super::remap::Background;
use super::shape;
use super::slice::{Masks, StridedSpec};
use super::walk::copy_strided;
use crate::error::Result;
use crate::kernels::op::{OpContext, VariableUpdate};
use crate::layout::Iteration;
use crate::require;
use crate::tensor::{HostTensor, Tensor};

/// The walk that reads a value in the slice's shape; None if there is nothing to write. An empty
/// slice accepts a value of any shape. Leading ones in a value's shape do not count.
fn read_as(spec: &StridedSpec, value: &[usize]) -> Result<Option<Iteration>> {
    if spec.shape.contains(&0) {
        return Ok(None);
    }
    let lead = value.iter().take_while(|n| **n == 1).count();
    let cut = &value[lead.min(value.len().saturating_sub(spec.shape.len()))..];
    let fits = cut.len() <= spec.shape.len()
        && cut.iter().rev().zip(spec.shape.iter().rev()).all(|(n, into)| n == into || *n == 1);
    require!(
        fits,
        "Cannot broadcast input shape {} into final shape {}",
        shape(value),
        shape(&spec.shape)
    );
    Ok(Some(Iteration::over(&spec.shape).broadcast(cut)))
}

/// The value in the slice's shape, as `walk` reads it.
fn filled(
    ctx: &mut dyn OpContext,
    spec: &StridedSpec,
    value: &Tensor,
    walk: Iteration,
) -> Result<Tensor> {
    if value.len() == spec.shape.iter().product::<usize>() {
        return Ok(value.clone());
    }
    let whole = ctx.temp(value.dtype, &spec.shape)?;
    copy_strided(ctx.device(), &walk.broadcast(&spec.shape), value, &whole)?;
    Ok(whole)
}

/// ResourceStridedSliceAssign and StridedSliceAssign: inputs the variable (0), begin (1), end (2),
/// strides (3) and value (4).
pub fn variable_strided_slice_assign(ctx: &mut dyn OpContext, masks: &Masks) -> Result<()> {
    let value = ctx.input(4)?;
    ctx.update_variable(0, VariableUpdate::Sparse, &mut |ctx, _, variable| {
        let spec = StridedSpec::read(ctx, 1, masks, &variable.dims)?;
        let Some(walk) = read_as(&spec, &value.dims)? else { return Ok(()) };
        let value = filled(ctx, &spec, &value, walk)?;
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
            let Some(walk) = read_as(&spec, &value.dims)? else {
                return ctx.forward_input(0, 0, &x.dims);
            };
            let value = filled(ctx, &spec, &value, walk)?;
            let dst = ctx.forward_or_output(&[0], 0, x.dtype, &x.dims)?;
            if dst.address != x.address {
                ctx.device().copy(dst.address, x.address, x.bytes())?;
            }
            spec.write_into(&x.dims, Background::Keep).enqueue(ctx.device(), &value, &dst)
        }
        MemoryType::Host => {
            let (x, value) = (ctx.host_input(0)?, ctx.host_input(4)?);
            let spec = StridedSpec::read(ctx, 1, masks, &x.dims)?;
            let Some(walk) = read_as(&spec, &value.dims)? else {
                return ctx.host_output(0, &x);
            };
            let value = Move::strided(walk).of_host(&value)?;
            // Each element gets the number of the value's element that it takes, counted from 1; 0
            // keeps it.
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
