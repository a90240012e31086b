//! A `std::vector<Tensor>` of TensorFlow's, in a list or an optional.

use std::marker::PhantomData;

use super::release::{ListApi, layout};
use crate::error::Result;
use crate::ffi::kernel::context::Context;
use crate::ffi::kernel::tensor::OwnedTensor;

/// `DT_INVALID`: a tensor that has not been set.
const UNINITIALIZED: i32 = 0;

/// The vector, kept alive by the tensor of the variant it is in.
#[derive(Clone, Copy)]
pub(super) struct Tensors<'t> {
    api: &'static ListApi,
    /// Start, end and end of the capacity.
    vector: *const [*mut u8; 3],
    owner: PhantomData<&'t OwnedTensor>,
}

impl Tensors<'_> {
    /// The vector at `vector`.
    ///
    /// # Safety
    /// A `std::vector<Tensor>` must be there and live as long as the value.
    pub const unsafe fn new(api: &'static ListApi, vector: *const u8) -> Self {
        Self { api, vector: vector.cast(), owner: PhantomData }
    }

    /// Whether the three pointers can be a vector's.
    pub fn is_plausible(&self) -> bool {
        // SAFETY: a std::vector is three pointers.
        let [start, end, limit] = unsafe { *self.vector }.map(|p| p as usize);
        start <= end && end <= limit && (end - start).is_multiple_of(layout::TENSOR_SIZE)
    }

    /// Number of tensors.
    pub fn len(&self) -> usize {
        // SAFETY: as above.
        let [start, end, _] = unsafe { *self.vector };
        (end as usize - start as usize) / layout::TENSOR_SIZE
    }

    fn at(&self, i: usize) -> *mut u8 {
        assert!(i < self.len(), "no tensor {i} among {}", self.len());
        // SAFETY: as above.
        unsafe { (*self.vector)[0] }.wrapping_add(i * layout::TENSOR_SIZE)
    }

    /// Tensor `i`; None when it has not been set.
    pub fn get(&self, ctx: &Context, i: usize) -> Result<Option<OwnedTensor>> {
        let status = ctx.status();
        // SAFETY: there is a Tensor; the status is OK before the call, which returns an owned
        // tensor or null.
        let tensor = unsafe {
            let raw = (self.api.to_c)(self.at(i), status.as_ptr());
            OwnedTensor::new(ctx.api(), raw, status)
        }?;
        Ok((tensor.type_number() != UNINITIALIZED).then_some(tensor))
    }

    /// Sets tensor `i` of a vector that was made here and is not shared yet.
    pub fn set(&self, ctx: &Context, i: usize, tensor: &OwnedTensor) -> Result<()> {
        // SAFETY: there is a Tensor, which is assigned to.
        unsafe { (self.api.from_c)(tensor.as_ptr(), self.at(i)) }.take(ctx.status())
    }
}

/// Writes a new vector of `len` tensors that are not set. Its memory comes from `operator new`,
/// where its destructor expects it.
///
/// # Safety
/// `vector` must have room for a vector, and none in it.
pub(super) unsafe fn write_new(api: &ListApi, vector: *mut u8, len: usize) {
    // SAFETY: the allocation has room for `len` tensors, each constructed once.
    unsafe {
        let start =
            if len == 0 { std::ptr::null_mut() } else { (api.new)(len * layout::TENSOR_SIZE) };
        let end = start.wrapping_add(len * layout::TENSOR_SIZE);
        for i in 0..len {
            (api.empty_tensor)(start.add(i * layout::TENSOR_SIZE), UNINITIALIZED);
        }
        vector.cast::<[*mut u8; 3]>().write([start, end, end]);
    }
}
