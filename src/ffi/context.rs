//! One execution of a node: the functions that TensorFlow offers on a TF_OpKernelContext.
//! `op_context` turns it into the [`OpContext`](crate::kernels::op::OpContext) of our kernels.
//!
//! A TF_Tensor is held only while it is read, for TensorFlow forwards an input's buffer only while
//! there is no other reference to it. TensorFlow itself keeps inputs and outputs alive until the
//! kernel returns. Temporaries, and outputs that may be inputs, are kept here until then. After
//! that, TensorFlow may give their memory to another kernel, which the in-order queue runs later.

use std::ffi::c_int;
use std::fmt::Write;
use std::sync::Arc;

use smallvec::SmallVec;

use super::tensor::{CDims, OwnedTensor, c_dims};
use crate::device::Device;
use crate::device::trace::Origin;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ffi::abi::kernel::{
    KernelApi, REFERENCE, TF_AllocatorAttributes, TF_OpKernelContext, TF_Tensor,
};
use crate::ffi::status::{self, Status};
use crate::tensor::{Tensor, shape_text};

/// The alignment of the start of a buffer that a kernel writes, a reused buffer included.
pub(crate) const OUTPUT_ALIGNMENT: u64 = 16;

/// One execution of a node.
pub(crate) struct Context {
    api: &'static KernelApi,
    /// Valid during the compute function, which outlives the value.
    raw: *mut TF_OpKernelContext,
    status: Status,
    device: &'static Device,
    /// The op that runs.
    origin: Arc<Origin>,
    /// The inputs of a region's node that has failed, described.
    failed: Option<String>,
    /// Addresses of the inputs that were read so far, with the inputs' indices.
    seen: SmallVec<[(usize, u64); 4]>,
    /// Temporaries and variables' values in use, each with its address.
    held: SmallVec<[(u64, OwnedTensor); 4]>,
    /// The inputs of the variables whose lock is held, to refuse a deadlock.
    locked: SmallVec<[usize; 2]>,
}

impl Context {
    /// The execution `raw` on `device`.
    ///
    /// # Safety
    /// `raw` must be the pointer that TensorFlow passed to a compute function, which must outlive
    /// the value.
    pub unsafe fn new(
        api: &'static KernelApi,
        raw: *mut TF_OpKernelContext,
        status: Status,
        device: &'static Device,
        origin: Arc<Origin>,
    ) -> Self {
        Self {
            api,
            raw,
            status,
            device,
            origin,
            failed: None,
            seen: SmallVec::new(),
            held: SmallVec::new(),
            locked: SmallVec::new(),
        }
    }

    /// The pointer, for the code that reaches variables through the C API.
    pub const fn raw(&self) -> *mut TF_OpKernelContext {
        self.raw
    }

    pub const fn api(&self) -> &'static KernelApi {
        self.api
    }

    pub const fn status(&self) -> &Status {
        &self.status
    }

    pub const fn device(&self) -> &'static Device {
        self.device
    }

    pub fn num_inputs(&self) -> usize {
        // SAFETY: the context is valid.
        unsafe { (self.api.TF_NumInputs)(self.raw) as usize }
    }

    /// Device input `i`. Its address is remembered.
    pub fn see_input(&mut self, i: usize) -> Result<Tensor> {
        let view = self.get_input(i)?.view()?;
        self.seen.push((i, view.address));
        Ok(view)
    }

    /// Attributes memory and errors to a node of the region that runs, from now on.
    pub fn work_for(&mut self, node: &Arc<Origin>, failed: Option<String>) {
        self.origin.clone_from(node);
        self.failed = failed;
    }

    /// The position of the tensor at this address among the tensors that are kept alive.
    fn held_at(&self, address: u64) -> Option<usize> {
        self.held.iter().rposition(|(own, _)| *own == address)
    }

    /// Drops a tensor that is kept alive.
    pub fn drop_held(&mut self, address: u64) {
        if let Some(at) = self.held_at(address) {
            self.held.swap_remove(at);
        }
    }

    /// Makes a tensor that is kept alive the output `o`, with this shape and the output's type.
    pub fn set_held(&self, o: usize, address: u64, dims: &[usize]) -> Result<()> {
        let missing = || Error::Internal(format!("no temporary is at output {o}'s address"));
        let (_, tensor) = &self.held[self.held_at(address).ok_or_else(missing)?];
        self.set_viewed(o, tensor, dims)
    }

    /// Makes a tensor, seen with this shape and the output's type, the output `o`.
    pub fn set_viewed(&self, o: usize, tensor: &OwnedTensor, dims: &[usize]) -> Result<()> {
        // SAFETY: TF_ExpectedOutputDataType takes a valid context and an index below TF_NumOutputs.
        let expected = unsafe {
            if o >= (self.api.TF_NumOutputs)(self.raw) as usize {
                return Err(Error::Internal(format!("there is no output {o}")));
            }
            (self.api.TF_ExpectedOutputDataType)(self.raw, o as c_int)
        };
        if expected == tensor.type_number() && tensor.dims()[..] == *dims {
            return self.set_output(o, tensor);
        }
        self.set_output(o, &self.bitcast(tensor, expected, dims)?)
    }

    /// Keeps a tensor at this address alive until the kernel returns.
    pub fn hold(&mut self, address: u64, tensor: OwnedTensor) {
        self.held.push((address, tensor));
    }

    /// The dims of a new tensor on the device as the C API takes them, and its bytes. A tensor that
    /// the device can never hold is refused at once: TensorFlow would wait ten seconds for memory
    /// to be freed.
    pub(super) fn new_dims(&self, dtype: DType, dims: &[usize]) -> Result<(CDims, usize)> {
        let (c_dims, bytes) = c_dims(dtype, dims)?;
        let refused = |why: &str, most: u64| {
            let shape = shape_text(dims);
            let message = format!(
                "out of memory for a {dtype} tensor of shape {shape}: {bytes} bytes; {why} {most} \
                 bytes"
            );
            Err(Error::ResourceExhausted(message))
        };
        let (total, largest) = (self.device.total_memory(), self.device.capabilities().max_buffer);
        match bytes as u64 {
            bytes if bytes > total => refused("the device has", total),
            bytes if bytes > largest => refused("the adapter's largest buffer has", largest),
            _ => Ok((c_dims, bytes)),
        }
    }

    /// A temporary, owned by the caller.
    pub fn allocate_temp(&self, dtype: DType, extents: &[usize]) -> Result<OwnedTensor> {
        let (dims, _) = self.new_dims(dtype, extents)?;
        // SAFETY: context, dims and status are valid for the call; null attributes mean device
        // memory.
        let raw = unsafe {
            (self.api.TF_AllocateTemp)(
                self.raw,
                dtype as c_int,
                dims.as_ptr(),
                dims.len() as c_int,
                std::ptr::null_mut(),
                self.status.as_ptr(),
            )
        };
        // SAFETY: TF_AllocateTemp returns an owned tensor or null.
        let tensor = unsafe { OwnedTensor::new(self.api, raw, &self.status) }?;
        self.refresh(tensor.address(), dtype, extents);
        Ok(tensor)
    }

    /// Tells the device that a new tensor begins at an address where others may have been.
    pub(super) fn refresh(&self, address: u64, dtype: DType, dims: &[usize]) {
        let bytes =
            dims.iter().fold(dtype.size() as u64, |bytes, d| bytes.saturating_mul(*d as u64));
        self.device.refresh(address, bytes);
        self.device.note_made(address, bytes, (dtype, dims), &self.origin);
    }

    /// A new scalar of type variant, which is always in host memory. It is an empty variant.
    pub fn allocate_variant(&self) -> Result<OwnedTensor> {
        let mut attributes =
            TF_AllocatorAttributes { struct_size: TF_AllocatorAttributes::STRUCT_SIZE, on_host: 1 };
        // SAFETY: context, attributes and status are valid for the call; a scalar has no dims.
        let raw = unsafe {
            (self.api.TF_AllocateTemp)(
                self.raw,
                DType::Variant as c_int,
                std::ptr::null(),
                0,
                &raw mut attributes,
                self.status.as_ptr(),
            )
        };
        // SAFETY: TF_AllocateTemp returns an owned tensor or null.
        unsafe { OwnedTensor::new(self.api, raw, &self.status) }
    }

    /// Makes `tensor` the output `o`.
    pub fn set_output(&self, o: usize, tensor: &OwnedTensor) -> Result<()> {
        // SAFETY: context, output and status are valid for the call; TensorFlow takes its own
        // reference, and refuses an index that is not an output's.
        unsafe {
            (self.api.TF_SetOutput)(self.raw, o as c_int, tensor.as_ptr(), self.status.as_ptr())
        };
        self.status.take()
    }

    /// Marks the variable at input `i` as locked while `f` runs.
    pub fn with_locked<T>(
        &mut self,
        i: usize,
        f: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        self.locked.push(i);
        let result = f(self);
        self.locked.pop();
        result
    }

    /// Marks the variables at `inputs` as locked while `f` runs.
    pub fn with_all_locked<T>(
        &mut self,
        inputs: &[usize],
        f: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        let before = self.locked.len();
        self.locked.extend_from_slice(inputs);
        let result = f(self);
        self.locked.truncate(before);
        result
    }

    /// The inputs of the variables whose lock this kernel holds already.
    pub fn locked(&self) -> &[usize] {
        &self.locked
    }

    pub(crate) fn get_input(&mut self, i: usize) -> Result<OwnedTensor> {
        let mut raw: *mut TF_Tensor = std::ptr::null_mut();
        // SAFETY: context, tensor pointer and status are valid for the call; an index out of range
        // is an error status.
        unsafe { (self.api.TF_GetInput)(self.raw, i as c_int, &raw mut raw, self.status.as_ptr()) };
        // SAFETY: TF_GetInput wrote an owned tensor, or left null with an error status.
        unsafe { OwnedTensor::new(self.api, raw, &self.status) }
    }

    /// The address of device input `i`.
    pub(super) fn input_address(&mut self, i: usize) -> Result<u64> {
        match self.seen.iter().find(|(input, _)| *input == i) {
            Some((_, address)) => Ok(*address),
            None => Ok(self.get_input(i)?.address()),
        }
    }

    /// The buffer of `from` seen with another type and other dims.
    fn bitcast(&self, from: &OwnedTensor, dtype: c_int, dims: &[usize]) -> Result<OwnedTensor> {
        // For a type that is none of ours, TensorFlow checks the number of bytes.
        let (dims, _) = c_dims(DType::from_tf(dtype).unwrap_or(DType::U8), dims)?;
        // SAFETY: an empty vector needs no memory; the tensor only stands in for the result.
        let raw = unsafe { (self.api.TF_AllocateTensor)(dtype, [0].as_ptr(), 1, 0) };
        // SAFETY: TF_AllocateTensor returns an owned tensor or null.
        let to = unsafe { OwnedTensor::new(self.api, raw, &self.status) }?;
        let status = self.status.as_ptr();
        // SAFETY: both tensors, dims and status are valid for the call; TensorFlow compares the
        // sizes.
        unsafe {
            (self.api.TF_TensorBitcastFrom)(
                from.as_ptr(),
                dtype,
                to.as_ptr(),
                dims.as_ptr(),
                dims.len() as c_int,
                status,
            );
        }
        self.status.take()?;
        Ok(to)
    }

    pub(super) fn check_output(&self, i: usize, dtype: DType) -> Result<()> {
        // SAFETY: TF_NumOutputs takes a valid context; TF_ExpectedOutputDataType an index below it.
        let expected = unsafe {
            if i >= (self.api.TF_NumOutputs)(self.raw) as usize {
                return Err(Error::Internal(format!("there is no output {i}")));
            }
            (self.api.TF_ExpectedOutputDataType)(self.raw, i as c_int)
        };
        if expected != dtype as c_int {
            let expected = DType::from_tf(expected).map_or("another type", DType::name);
            return Err(Error::Internal(format!(
                "output {i} is declared as {expected}, the kernel made {dtype}"
            )));
        }
        Ok(())
    }

    pub(super) fn allocate_output(
        &mut self,
        i: usize,
        dtype: DType,
        dims: &[usize],
    ) -> Result<OwnedTensor> {
        self.check_output(i, dtype)?;
        let extents = dims;
        let (dims, bytes) = self.new_dims(dtype, dims)?;
        // SAFETY: context, dims and status are valid for the call, and the index is checked.
        let raw = unsafe {
            (self.api.TF_AllocateOutput)(
                self.raw,
                i as c_int,
                dtype as c_int,
                dims.as_ptr(),
                dims.len() as c_int,
                bytes,
                self.status.as_ptr(),
            )
        };
        // SAFETY: TF_AllocateOutput returns an owned tensor or null.
        let tensor = unsafe { OwnedTensor::new(self.api, raw, &self.status) }?;
        self.refresh(tensor.address(), dtype, extents);
        Ok(tensor)
    }

    /// The inputs as `float32[2,3], host int32[2]`, for error messages.
    fn describe_inputs(&mut self) -> String {
        let mut text = String::new();
        for i in 0..self.num_inputs() {
            let separator = if i == 0 { "" } else { ", " };
            // SAFETY: a valid context and an index below TF_NumInputs.
            let number = unsafe { (self.api.TF_InputDatatype)(self.raw, i as c_int) };
            let _ = match DType::from_tf(number) {
                Some(dtype @ (DType::Resource | DType::Variant)) => {
                    write!(text, "{separator}{dtype}")
                }
                Some(dtype) => match self.get_input(i) {
                    Ok(tensor) => write!(text, "{separator}{dtype}{}", shape_text(&tensor.dims())),
                    Err(_) => write!(text, "{separator}{dtype}"),
                },
                // Asking for the tensor would end the process.
                None => match DType::from_tf(number - REFERENCE) {
                    Some(dtype) => write!(text, "{separator}{dtype} by reference"),
                    None => write!(text, "{separator}type {number}"),
                },
            };
        }
        text
    }

    /// Makes `error` the outcome of this execution, with op, node and inputs in its message.
    pub fn fail(&mut self, error: Error) {
        let inputs = self.failed.take().unwrap_or_else(|| self.describe_inputs());
        let large = match &error {
            Error::ResourceExhausted(_) => self.device.large_tensors(),
            _ => None,
        };
        let error = match large {
            Some(large) => error.map_message(|m| format!("{m}; {large}{ADVICE}")),
            None => error,
        };
        fail(self.api, self.raw, &describe(error, &self.origin, &inputs));
    }
}

/// Advice for a program that is short of memory.
const ADVICE: &str = ". A smaller batch helps, keras.mixed_precision, or tf.recompute_grad around \
                      blocks of a model";

/// `error` with its op, node and inputs:
/// `MatMul: … (node model/dense/MatMul, inputs float32[2,3], float32[4,5])`. The message of a fused
/// op begins with the program's ops that it holds and names the fused op last:
/// `MatMul, BiasAdd: … (node model/dense/BiasAdd, inputs …; fused into _WgpuFusedMatMul)`.
fn describe(error: Error, origin: &Origin, inputs: &str) -> Error {
    let Origin { op, node, holds } = origin;
    error.map_message(|m| match holds.as_str() {
        "" => format!("{op}: {m} (node {node}, inputs {inputs})"),
        _ => format!("{holds}: {m} (node {node}, inputs {inputs}; fused into {op})"),
    })
}

/// Makes `error` the outcome of the execution `raw`.
pub(crate) fn fail(api: &KernelApi, raw: *mut TF_OpKernelContext, error: &Error) {
    match Status::new() {
        Ok(status) => {
            status::set(status.as_ptr(), error);
            // SAFETY: `raw` is the context of the compute function under way; the status is copied.
            unsafe { (api.TF_OpKernelContext_Failure)(raw, status.as_ptr()) };
        }
        Err(e) => log::error!("{error} ({e})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_program_s_ops_before_a_fused_one() {
        let said = |op: &str, holds: &str| {
            let origin =
                Origin { op: op.into(), node: "model/dense/Relu".into(), holds: holds.into() };
            let error = Error::InvalidArgument("no".into());
            describe(error, &origin, "float32[2,3]").to_string()
        };
        assert_eq!(said("Relu", ""), "Relu: no (node model/dense/Relu, inputs float32[2,3])");
        assert_eq!(
            said("_WgpuFusedMatMul", "MatMul, Relu"),
            "MatMul, Relu: no (node model/dense/Relu, inputs float32[2,3]; fused into \
             _WgpuFusedMatMul)"
        );
    }
}
