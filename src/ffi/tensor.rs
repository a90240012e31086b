//! An owned TF_Tensor: a reference to one of TensorFlow's buffers, released on drop.

use std::ffi::c_int;
use std::ptr::NonNull;

use smallvec::SmallVec;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ffi::abi::kernel::{KernelApi, TF_Tensor};
use crate::ffi::status::Status;
use crate::tensor::{Dims, HostTensor, Tensor, shape_text};
use crate::{invalid, require};

/// Extents as the C API takes them.
pub(crate) type CDims = SmallVec<[i64; 8]>;

/// The largest rank that TensorFlow's shape allows. A larger rank, or more elements than an i64 can
/// count, ends the process there.
const MAX_RANK: usize = 254;

/// `dims` as the C API takes them, and the number of bytes of all elements.
///
/// # Errors
/// `InvalidArgument` for extents that TensorFlow does not accept as a shape, `ResourceExhausted`
/// for a shape whose bytes cannot be counted.
pub(crate) fn c_dims(dtype: DType, dims: &[usize]) -> Result<(CDims, usize)> {
    let shape = || shape_text(dims);
    require!(
        dims.len() <= MAX_RANK,
        "a tensor of {} dimensions; TensorFlow allows {MAX_RANK}",
        dims.len()
    );
    let mut c_dims = CDims::new();
    let mut elements = 1_i64;
    for dim in dims {
        // The product is formed in TensorFlow's order: an overflow counts even if a later extent
        // is 0.
        let Some((dim, product)) =
            i64::try_from(*dim).ok().and_then(|d| Some((d, elements.checked_mul(d)?)))
        else {
            invalid!("Shape {} would have more than 2**63 - 1 elements", shape());
        };
        c_dims.push(dim);
        elements = product;
    }
    match usize::try_from(elements).ok().and_then(|n| n.checked_mul(dtype.size())) {
        Some(bytes) if i64::try_from(bytes).is_ok() => Ok((c_dims, bytes)),
        _ => Err(Error::ResourceExhausted(format!(
            "out of memory for a {dtype} tensor of shape {}",
            shape()
        ))),
    }
}

/// An owned reference to a tensor's buffer.
#[derive(Debug)]
pub(crate) struct OwnedTensor {
    api: &'static KernelApi,
    raw: NonNull<TF_Tensor>,
}

impl OwnedTensor {
    /// Takes the result of a function that returns a new TF_Tensor. If it is null, `status` holds
    /// the reason.
    ///
    /// # Safety
    /// `raw` must be null or an owned TF_Tensor.
    pub unsafe fn new(
        api: &'static KernelApi,
        raw: *mut TF_Tensor,
        status: &Status,
    ) -> Result<Self> {
        match NonNull::new(raw) {
            Some(raw) => Ok(Self { api, raw }),
            None => Err(status.take().err().unwrap_or_else(|| {
                Error::Internal("TensorFlow returned neither a tensor nor an error".to_owned())
            })),
        }
    }

    /// The pointer for C; valid while `self` lives.
    pub const fn as_ptr(&self) -> *mut TF_Tensor {
        self.raw.as_ptr()
    }

    /// TensorFlow's number of the element type, which need not be one of ours.
    pub fn type_number(&self) -> c_int {
        // SAFETY: the tensor is ours and alive.
        unsafe { (self.api.TF_TensorType)(self.as_ptr()) }
    }

    /// The element type.
    pub fn dtype(&self) -> Result<DType> {
        // SAFETY: the tensor is ours and alive.
        let number = unsafe { (self.api.TF_TensorType)(self.as_ptr()) };
        DType::from_tf(number).ok_or_else(|| {
            Error::Unimplemented(format!(
                "TensorFlow's type {number} is not supported on this device"
            ))
        })
    }

    /// The extents.
    pub fn dims(&self) -> Dims {
        // SAFETY: the tensor is ours and alive, and the index stays below TF_NumDims.
        unsafe {
            let rank: c_int = (self.api.TF_NumDims)(self.as_ptr());
            (0..rank).map(|i| (self.api.TF_Dim)(self.as_ptr(), i) as usize).collect()
        }
    }

    /// The buffer's address: a device address, or a host address if the argument was registered as
    /// host memory.
    pub fn address(&self) -> u64 {
        // SAFETY: the tensor is ours and alive. A device address is only a number here.
        unsafe { (self.api.TF_TensorData)(self.as_ptr()) as u64 }
    }

    /// A tensor in device memory as kernels see it.
    pub fn view(&self) -> Result<Tensor> {
        Ok(Tensor { dtype: self.dtype()?, dims: self.dims(), address: self.address() })
    }

    /// The bytes of a tensor in host memory.
    ///
    /// # Safety
    /// The tensor must be in host memory, and no thread may write it during the borrow.
    pub unsafe fn host_bytes(&self) -> &[u8] {
        // SAFETY: the caller vouches that TF_TensorData is host memory. It has TF_TensorByteSize
        // bytes and lives as long as the tensor. It is null for an empty tensor.
        unsafe {
            let data = (self.api.TF_TensorData)(self.as_ptr()).cast::<u8>().cast_const();
            let len = (self.api.TF_TensorByteSize)(self.as_ptr());
            if data.is_null() { &[] } else { std::slice::from_raw_parts(data, len) }
        }
    }

    /// The bytes of a tensor in host memory, for writing.
    ///
    /// # Safety
    /// The tensor must be in host memory, and must not be used otherwise during the borrow.
    pub unsafe fn host_bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `host_bytes`; the caller vouches for exclusive use.
        unsafe {
            let data = (self.api.TF_TensorData)(self.as_ptr()).cast::<u8>();
            let len = (self.api.TF_TensorByteSize)(self.as_ptr());
            if data.is_null() { &mut [] } else { std::slice::from_raw_parts_mut(data, len) }
        }
    }

    /// A copy of a tensor in host memory.
    ///
    /// # Safety
    /// The tensor must be in host memory.
    pub unsafe fn to_host(&self) -> Result<HostTensor> {
        let (dtype, dims) = (self.dtype()?, self.dims());
        if dtype.size() == 0 {
            return Err(Error::Internal(format!("a {dtype} tensor has no bytes to read")));
        }
        // SAFETY: the caller's contract.
        let bytes = unsafe { self.host_bytes() }.to_vec();
        Ok(HostTensor { dtype, dims, bytes })
    }

    /// Writes all bytes of a tensor in host memory.
    ///
    /// # Safety
    /// The tensor must be in host memory, and must not be in use yet.
    pub unsafe fn write_host(&self, bytes: &[u8]) -> Result<()> {
        // SAFETY: the tensor is ours and alive.
        let len = unsafe { (self.api.TF_TensorByteSize)(self.as_ptr()) };
        if len != bytes.len() {
            return Err(Error::Internal(format!(
                "a host tensor of {len} bytes cannot take {}",
                bytes.len()
            )));
        }
        // SAFETY: the caller's contract.
        unsafe { self.write_host_at(0, bytes) }
    }

    /// Writes `bytes` into a tensor in host memory, `at` bytes behind its start.
    ///
    /// # Safety
    /// The tensor must be in host memory, and these bytes must not be in use by anything else now.
    pub unsafe fn write_host_at(&self, at: usize, bytes: &[u8]) -> Result<()> {
        // SAFETY: the caller vouches for host memory and exclusive use; the range is checked.
        unsafe {
            let len = (self.api.TF_TensorByteSize)(self.as_ptr());
            if at.checked_add(bytes.len()).is_none_or(|end| end > len) {
                return Err(Error::Internal(format!(
                    "a host tensor of {len} bytes cannot take {} at {at}",
                    bytes.len()
                )));
            }
            if !bytes.is_empty() {
                let data = (self.api.TF_TensorData)(self.as_ptr()).cast::<u8>().add(at);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), data, bytes.len());
            }
        }
        Ok(())
    }
}

impl Drop for OwnedTensor {
    fn drop(&mut self) {
        // SAFETY: the tensor is ours, and is deleted once.
        unsafe { (self.api.TF_DeleteTensor)(self.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_that_tensorflow_would_die_of_are_errors() {
        let bytes = |dims: &[usize]| c_dims(DType::F32, dims).map(|(_, bytes)| bytes);
        assert_eq!(bytes(&[]), Ok(4));
        assert_eq!(bytes(&[2, 0, 3]), Ok(0));
        assert_eq!(bytes(&[0, 1 << 62, 1 << 62]), Ok(0));
        let largest = (1 << 61) - 1;
        assert_eq!(bytes(&[largest]), Ok(4 * largest));
        let invalid = [
            vec![1 << 32, 1 << 31],
            vec![1 << 62, 4, 0],
            vec![1 << 63],
            vec![usize::MAX],
            vec![1; 255],
        ];
        for dims in invalid {
            assert!(matches!(bytes(&dims), Err(Error::InvalidArgument(_))), "{dims:?}");
        }
        for dims in [[1 << 61, 1], [1 << 31, (1 << 32) - 1]] {
            assert!(matches!(bytes(&dims), Err(Error::ResourceExhausted(_))), "{dims:?}");
        }
    }
}
