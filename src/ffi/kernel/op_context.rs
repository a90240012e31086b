//! [`OpContext`] for one execution of a node in TensorFlow.

use std::ffi::c_int;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::device::Device;
use crate::device::trace::Origin;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ffi::abi::kernel::{KernelApi, TF_OpKernelContext};
use crate::ffi::context::{Context, OUTPUT_ALIGNMENT};
use crate::ffi::status::Status;
use crate::ffi::tensor::OwnedTensor;
use crate::ffi::{parked, stream_executor, variables, variants};
use crate::kernels::op::{Execution, OpContext, UpdateAll, VariableUpdate};
use crate::tensor::{HostTensor, Tensor};

/// The execution `raw`, on the device of its stream.
///
/// # Safety
/// `raw` must be the pointer that TensorFlow passed to a compute function, which must outlive the
/// value.
pub(super) unsafe fn open(
    api: &'static KernelApi,
    raw: *mut TF_OpKernelContext,
    origin: &Arc<Origin>,
) -> Result<Context> {
    let status = Status::new()?;
    // SAFETY: context and status are valid; the stream comes from our create_stream, or is null
    // with an error.
    let stream = unsafe { (api.TF_GetStream)(raw, status.as_ptr()) };
    status.take()?;
    // SAFETY: TensorFlow hands back the stream of the device on which the node runs.
    let device = unsafe { stream_executor::stream_device(stream) }?;
    // SAFETY: the caller's contract.
    Ok(unsafe { Context::new(api, raw, status, device, origin.clone()) })
}

impl Context {
    /// Input `i`, which must be in host memory. The tensor lives as long as the value.
    fn host_tensor(&mut self, i: usize) -> Result<OwnedTensor> {
        let tensor = self.get_input(i)?;
        if self.device().owns(tensor.address()) {
            return Err(Error::Internal(format!(
                "input {i} is on the device, the kernel reads it on the host"
            )));
        }
        Ok(tensor)
    }

    /// Output `i`, and whether it shares the buffer of one of the inputs `candidates`, which must
    /// have been read. It does if TensorFlow finds no other reference to the input, and type and
    /// size fit.
    fn forward_or_allocate(
        &mut self,
        candidates: &[c_int],
        i: usize,
        dtype: DType,
        dims: &[usize],
    ) -> Result<(OwnedTensor, bool)> {
        self.check_output(i, dtype)?;
        let (c_dims, _) = self.new_dims(dtype, dims)?;
        let mut forwarded = -1;
        // SAFETY: context, candidates, dims, `forwarded` and status are valid for the call; the
        // candidates are inputs, for they were read, and the output's index is checked.
        let raw = unsafe {
            (self.api().TF_ForwardInputOrAllocateOutput)(
                self.raw(),
                candidates.as_ptr(),
                candidates.len() as c_int,
                i as c_int,
                c_dims.as_ptr(),
                c_dims.len() as c_int,
                &raw mut forwarded,
                self.status().as_ptr(),
            )
        };
        // SAFETY: TF_ForwardInputOrAllocateOutput returns an owned tensor or null.
        let output = unsafe { OwnedTensor::new(self.api(), raw, self.status()) }?;
        Ok((output, forwarded >= 0))
    }
}

impl OpContext for Context {
    fn device(&self) -> &Device {
        Self::device(self)
    }

    fn num_inputs(&self) -> usize {
        Self::num_inputs(self)
    }

    fn input(&mut self, i: usize) -> Result<Tensor> {
        let view = self.see_input(i)?;
        if view.dtype.size() == 0 {
            return Err(Error::Internal(format!("input {i} is a {}, not a tensor", view.dtype)));
        }
        Ok(view)
    }

    fn host_input(&mut self, i: usize) -> Result<HostTensor> {
        let tensor = self.host_tensor(i)?;
        // SAFETY: the tensor is in host memory.
        unsafe { tensor.to_host() }
    }

    fn read_host(&mut self, i: usize, read: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let tensor = self.host_tensor(i)?;
        // SAFETY: the tensor is in host memory.
        read(unsafe { tensor.host_bytes() })
    }

    fn change_host(
        &mut self,
        i: usize,
        o: usize,
        change: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let input = self.host_tensor(i)?;
        let (dtype, dims) = (input.dtype()?, input.dims());
        // With a reference of ours, TensorFlow would not forward the input.
        drop(input);
        let (mut output, is_input) = self.forward_or_allocate(&[i as c_int], o, dtype, &dims)?;
        if self.device().owns(output.address()) {
            return Err(Error::Internal(format!(
                "output {o} is on the device, the kernel writes it on the host"
            )));
        }
        if !is_input {
            let input = self.host_tensor(i)?;
            // SAFETY: both tensors are in host memory, and the output is fresh.
            unsafe { output.write_host(input.host_bytes()) }?;
        }
        // SAFETY: the output is in host memory. It is fresh, or it is the input, to which there is
        // no other reference.
        change(unsafe { output.host_bytes_mut() })
    }

    fn output(&mut self, i: usize, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        let address = self.allocate_output(i, dtype, dims)?.address();
        self.device().note_tensor(dtype, dims);
        Ok(Tensor::new(dtype, dims, address))
    }

    fn forward_or_output(
        &mut self,
        candidates: &[usize],
        i: usize,
        dtype: DType,
        dims: &[usize],
    ) -> Result<Tensor> {
        let mut usable: SmallVec<[c_int; 4]> = SmallVec::new();
        for &candidate in candidates {
            if self.input_address(candidate)?.is_multiple_of(OUTPUT_ALIGNMENT) {
                usable.push(candidate as c_int);
            }
        }
        let (output, is_input) = self.forward_or_allocate(&usable, i, dtype, dims)?;
        let address = output.address();
        if !is_input {
            self.device().note_tensor(dtype, dims);
            self.refresh(address, dtype, dims);
        }
        // Another output may share it.
        self.hold(address, output);
        Ok(Tensor::new(dtype, dims, address))
    }

    fn forward_input(&mut self, i: usize, o: usize, dims: &[usize]) -> Result<()> {
        let input = self.get_input(i)?;
        self.set_viewed(o, &input, dims)
    }

    fn host_output(&mut self, i: usize, value: &HostTensor) -> Result<()> {
        let output = self.allocate_output(i, value.dtype, &value.dims)?;
        if self.device().owns(output.address()) {
            return Err(Error::Internal(format!(
                "output {i} is on the device, the kernel writes it on the host"
            )));
        }
        // SAFETY: the address is not the device's, so the output was registered as host memory, and
        // it is fresh.
        unsafe { output.write_host(&value.bytes) }
    }

    fn overwrite_host_input(&mut self, i: usize, at: usize, bytes: &[u8]) -> Result<()> {
        let input = self.get_input(i)?;
        if self.device().owns(input.address()) {
            return Err(Error::Internal(format!(
                "input {i} is on the device, the kernel writes it on the host"
            )));
        }
        // SAFETY: the address is not the device's, so TensorFlow keeps the input on the host. The
        // caller vouches that its op may change the input, and that other such ops write other
        // bytes.
        unsafe { input.write_host_at(at, bytes) }
    }

    fn temp(&mut self, dtype: DType, dims: &[usize]) -> Result<Tensor> {
        let tensor = self.allocate_temp(dtype, dims)?;
        self.device().note_tensor(dtype, dims);
        let address = tensor.address();
        self.hold(address, tensor);
        Ok(Tensor::new(dtype, dims, address))
    }

    fn release(&mut self, temporary: &Tensor) {
        self.drop_held(temporary.address);
    }

    fn output_temp(&mut self, o: usize, temporary: &Tensor) -> Result<()> {
        self.set_held(o, temporary.address, &temporary.dims)
    }

    fn work_for(&mut self, node: &Arc<Origin>, inputs: Option<String>) {
        Self::work_for(self, node, inputs);
    }

    fn read_variable(&mut self, i: usize) -> Result<Tensor> {
        variables::read(self, i)
    }

    fn update_variable(
        &mut self,
        i: usize,
        mode: VariableUpdate,
        update: &mut dyn FnMut(&mut dyn OpContext, &Tensor, &Tensor) -> Result<()>,
    ) -> Result<()> {
        variables::update(self, i, mode, update)
    }

    fn update_variables(&mut self, inputs: &[usize], update: &mut UpdateAll<'_>) -> Result<()> {
        variables::update_all(self, inputs, update)
    }

    fn pass_reference(&mut self) -> Result<()> {
        variables::pass_reference(self)
    }

    fn assign_reference(&mut self, same_shape: bool) -> Result<()> {
        variables::assign_reference(self, same_shape)
    }

    fn add_variants(&mut self) -> Result<()> {
        variants::add(self)
    }

    fn zero_variant(&mut self) -> Result<()> {
        variants::zeros_like(self)
    }

    fn park(&mut self) -> Result<()> {
        parked::park(self)
    }

    fn unpark(&mut self, dtype: DType) -> Result<()> {
        parked::unpark(self, dtype)
    }

    fn execution(&self) -> Option<Execution> {
        Some(Execution(self.raw().cast()))
    }
}
