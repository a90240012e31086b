//! Sums and zeros of the tensors within variants: the device's own kernels, with elements for
//! inputs.

use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ffi::kernel::context::Context;
use crate::ffi::kernel::kernel_for;
use crate::ffi::kernel::tensor::OwnedTensor;
use crate::kernels::op::{OpContext, UpdateAll, VariableUpdate};
use crate::require;
use crate::tensor::{HostTensor, Tensor, shape_text};

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

/// An element's view, which must be on the device unless it is empty.
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

/// Writes the sum of two or more elements to `out`, which has the first one's type and shape.
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
    // Signed and unsigned sums are the same bits, and int32 tensors have a kernel on the host only.
    let computed = if dtype == DType::I32 { DType::U32 } else { dtype };
    let kernel = kernel_for("AddN", "T", computed).ok_or_else(unsupported)??;
    let seen = |ctx: &Context, element: &OwnedTensor| -> Result<Tensor> {
        let tensor = view(ctx, element)?;
        Ok(Tensor { dtype: computed, ..tensor })
    };
    let inputs = elements.iter().map(|e| seen(ctx, e)).collect::<Result<Vec<_>>>()?;
    let output = seen(ctx, out)?;
    if output.is_empty() { Ok(()) } else { kernel.compute(&mut Elements { ctx, inputs, output }) }
}

/// A kernel's view of some elements: they are its inputs, and its output is there already.
struct Elements<'c> {
    ctx: &'c mut Context,
    inputs: Vec<Tensor>,
    output: Tensor,
}

impl Elements<'_> {
    fn refused<T>(what: &str) -> Result<T> {
        Err(Error::Internal(format!("a kernel for tensors within a variant has no {what}")))
    }
}

impl OpContext for Elements<'_> {
    fn device(&self) -> &Device {
        self.ctx.device()
    }

    fn num_inputs(&self) -> usize {
        self.inputs.len()
    }

    fn input(&mut self, i: usize) -> Result<Tensor> {
        Ok(self.inputs[i].clone())
    }

    fn host_input(&mut self, _: usize) -> Result<HostTensor> {
        Self::refused("input in host memory")
    }

    fn output(&mut self, _: usize, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        if dtype != self.output.dtype || *dims != self.output.dims[..] {
            return Self::refused("output of another type or shape");
        }
        Ok(self.output.clone())
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
        Self::refused("input to forward")
    }

    fn host_output(&mut self, _: usize, _: &HostTensor) -> Result<()> {
        Self::refused("output in host memory")
    }

    fn temp(&mut self, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        self.ctx.temp(dtype, dims)
    }

    fn read_variable(&mut self, _: usize) -> Result<Tensor> {
        Self::refused("variable")
    }

    fn update_variable(
        &mut self,
        _: usize,
        _: VariableUpdate,
        _: &mut dyn FnMut(&mut dyn OpContext, &Tensor, &Tensor) -> Result<()>,
    ) -> Result<()> {
        Self::refused("variable")
    }

    fn update_variables(&mut self, _: &[usize], _: &mut UpdateAll<'_>) -> Result<()> {
        Self::refused("variable")
    }
}
