//! Sums and zeros of the tensors within variants, by the device's own kernels with the elements as
//! inputs.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ffi::context::Context;
use crate::ffi::ops::kernel_for;
use crate::ffi::tensor::OwnedTensor;
use crate::kernels::nested_context::NestedContext;
use crate::require;
use crate::tensor::{Tensor, shape_text};

/// TensorFlow's name of a type in its messages.
pub(super) fn type_text(number: i32) -> String {
    let name = match DType::from_tf(number) {
        Some(DType::F32) => "float",
        Some(DType::F64) => "double",
        Some(DType::F16) => "half",
        Some(other) => other.name(),
        None => return format!("type {number}"),
    };
    name.to_owned()
}

/// An element's view. An element that is not empty must be on the device.
fn view(ctx: &Context, element: &OwnedTensor) -> Result<Tensor> {
    let tensor = element.view()?;
    if tensor.is_empty() || ctx.device().owns(tensor.address) {
        Ok(tensor)
    } else {
        Err(Error::Internal(format!(
            "{}{} within a variant is not on the device",
            tensor.dtype,
            shape_text(&tensor.dims)
        )))
    }
}

/// Zeros with the type and shape of `element`.
pub(super) fn zeros(ctx: &Context, element: &OwnedTensor) -> Result<OwnedTensor> {
    let number = element.type_number();
    let Some(dtype) = DType::from_tf(number).filter(|t| t.size() > 0) else {
        return Err(Error::InvalidArgument(format!(
            "Trying to compute zeros_like for unsupported dtype {}",
            type_text(number)
        )));
    };
    let zeros = ctx.allocate_temp(dtype, &element.dims())?;
    fill(ctx, &zeros)?;
    Ok(zeros)
}

/// Fills a tensor on the device with zeros.
pub(super) fn fill(ctx: &Context, tensor: &OwnedTensor) -> Result<()> {
    let tensor = view(ctx, tensor)?;
    if tensor.is_empty() { Ok(()) } else { ctx.device().fill(tensor.address, tensor.bytes(), 0) }
}

/// The sum of two or more elements.
pub(super) fn sum(ctx: &mut Context, elements: &[OwnedTensor]) -> Result<OwnedTensor> {
    let out = ctx.allocate_temp(elements[0].dtype()?, &elements[0].dims())?;
    sum_into(ctx, elements, &out)?;
    Ok(out)
}

/// Writes the sum of two or more elements to `out`, which has the type and shape of the first one.
pub(super) fn sum_into(
    ctx: &mut Context,
    elements: &[OwnedTensor],
    out: &OwnedTensor,
) -> Result<()> {
    let first = &elements[0];
    for other in &elements[1..] {
        require!(
            first.type_number() == other.type_number(),
            "Trying to add two tensors with incompatible element types. One is {} and the other \
             is {}",
            type_text(first.type_number()),
            type_text(other.type_number())
        );
        require!(
            first.dims() == other.dims(),
            "Trying to add two tensors with incompatible element shapes. One is {} and the other \
             is {}",
            shape_text(&first.dims()),
            shape_text(&other.dims())
        );
    }
    let unsupported = || {
        Error::InvalidArgument(format!("Trying to add unsupported dtype {}", first.type_number()))
    };
    let dtype = first.dtype().map_err(|_| unsupported())?;
    // Signed and unsigned sums have the same bits, and int32 tensors have a kernel on the host
    // only.
    let computed = if dtype == DType::I32 { DType::U32 } else { dtype };
    let kernel = kernel_for("AddN", "T", computed).ok_or_else(unsupported)??;
    let seen = |ctx: &Context, element: &OwnedTensor| -> Result<Tensor> {
        let tensor = view(ctx, element)?;
        Ok(Tensor { dtype: computed, ..tensor })
    };
    let inputs = elements.iter().map(|e| seen(ctx, e)).collect::<Result<Vec<_>>>()?;
    let output = seen(ctx, out)?;
    if output.is_empty() {
        Ok(())
    } else {
        kernel.compute(&mut NestedContext::with_output(ctx, &inputs, output))
    }
}
