//! A `std::vector<Tensor>` of a list or an optional.

use std::marker::PhantomData;

use super::release::{ListApi, layout};
use crate::error::Result;
use crate::ffi::context::Context;
use crate::ffi::tensor::OwnedTensor;

/// `DT_INVALID`: the type of a tensor that is not set.
const UNINITIALIZED: i32 = 0;

/// The vector. The tensor of its variant keeps it alive.
#[derive(Clone, Copy)]
pub(super) struct Tensors<'t> {
    api: &'static ListApi,
    /// The start, the end, and the end of the capacity.
    vector: *const [*mut u8; 3],
    owner: PhantomData<&'t OwnedTensor>,
}

impl Tensors<'_> {
    /// The vector at `vector`.
    ///
    /// # Safety
    /// There must be a `std::vector<Tensor>` at `vector`, and it must outlive the value.
    pub const unsafe fn new(api: &'static ListApi, vector: *const u8) -> Self {
        Self { api, vector: vector.cast(), owner: PhantomData }
    }

    /// Whether the three pointers can be those of a vector.
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

    /// Tensor `i`; None if it is not set.
    pub fn get(&self, ctx: &Context, i: usize) -> Result<Option<OwnedTensor>> {
        let status = ctx.status();
        // SAFETY: there is a Tensor at this place. The status is OK before the call, which returns
        // an owned tensor or null.
        let tensor = unsafe {
            let raw = (self.api.to_c)(self.at(i), status.as_ptr());
            OwnedTensor::new(ctx.api(), raw, status)
        }?;
        Ok((tensor.type_number() != UNINITIALIZED).then_some(tensor))
    }

    /// Sets tensor `i` of a vector that was made here and is not shared yet.
    pub fn set(&self, ctx: &Context, i: usize, tensor: &OwnedTensor) -> Result<()> {
        // SAFETY: there is a Tensor at this place, and it is assigned to.
        unsafe { (self.api.from_c)(tensor.as_ptr(), self.at(i)) }.take(ctx.status())
    }
}

/// Writes a new vector of `len` tensors that are not set. Its memory comes from `operator new`,
/// because its destructor calls `operator delete`.
///
/// # Safety
/// `vector` must have room for a vector, and must not hold one yet.
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
