//! Sums and zeros of variants, by functions of kernels_experimental.h that call back for each
//! tensor.

use std::cell::Cell;

use super::elements;
use crate::error::{Error, Result};
use crate::ffi::abi::kernel::{KernelApi, TF_OpKernelContext, TF_Tensor};
use crate::ffi::context::{self, Context};
use crate::ffi::status::TF_Status;
use crate::ffi::symbols::symbol_table;
use crate::ffi::tensor::OwnedTensor;
use crate::sys::guard::caught;

/// Writes the sum of two tensors to a third; takes ownership of all of them.
type AddFn =
    unsafe extern "C" fn(*mut TF_OpKernelContext, *mut TF_Tensor, *mut TF_Tensor, *mut TF_Tensor);
/// Writes zeros to the second tensor, which is like the first; takes ownership of both.
type ZerosFn = unsafe extern "C" fn(*mut TF_OpKernelContext, *mut TF_Tensor, *mut TF_Tensor);

symbol_table! {
    /// Functions of kernels_experimental.h.
    pub(super) struct OfficialApi {
        required {
            TF_AddNVariant: unsafe extern "C" fn(*mut TF_OpKernelContext, AddFn, *mut TF_Status),
            TF_ZerosLikeVariant: unsafe extern "C" fn(*mut TF_OpKernelContext, ZerosFn,
                *mut TF_Status),
        }
        optional {}
    }
}

thread_local! {
    /// The execution under way on this thread; TensorFlow passes the callbacks no argument of ours.
    static CONTEXT: Cell<*mut Context> = const { Cell::new(std::ptr::null_mut()) };
}

/// Runs `call`, whose callbacks find the execution in [`CONTEXT`].
fn with_context(
    ctx: &mut Context,
    call: impl FnOnce(*mut TF_OpKernelContext, *mut TF_Status),
) -> Result<()> {
    let (raw, status) = (ctx.raw(), ctx.status().as_ptr());
    CONTEXT.set(ctx);
    call(raw, status);
    CONTEXT.set(std::ptr::null_mut());
    ctx.status().take()
}

/// Takes ownership of a callback's tensors and runs `body`. An error becomes the execution's error.
fn callback<const N: usize>(
    raw: *mut TF_OpKernelContext,
    tensors: [*mut TF_Tensor; N],
    body: impl FnOnce(&mut Context, [OwnedTensor; N]) -> Result<()>,
) {
    let done = caught("a variant's callback", || {
        // SAFETY: `with_context` stored the execution, and waits for this callback without using
        // it.
        let ctx = unsafe { CONTEXT.get().as_mut() }
            .ok_or_else(|| Error::Internal("TensorFlow calls back out of turn".to_owned()))?;
        // SAFETY: by the header, the callback owns its tensors and deletes them.
        let owned = tensors.map(|t| unsafe { OwnedTensor::new(ctx.api(), t, ctx.status()) });
        let mut taken = Vec::with_capacity(N);
        for tensor in owned {
            taken.push(tensor?);
        }
        let taken = taken
            .try_into()
            .map_err(|_| Error::Internal("the tensors changed their number".to_owned()))?;
        body(ctx, taken)
    });
    if let (Err(e), Ok(api)) = (done, KernelApi::get()) {
        context::fail(api, raw, &e);
    }
}

unsafe extern "C" fn add_tensors(
    raw: *mut TF_OpKernelContext,
    a: *mut TF_Tensor,
    b: *mut TF_Tensor,
    out: *mut TF_Tensor,
) {
    callback(raw, [a, b, out], |ctx, [a, b, out]| elements::sum_into(ctx, &[a, b], &out));
}

unsafe extern "C" fn zero_tensor(
    raw: *mut TF_OpKernelContext,
    input: *mut TF_Tensor,
    out: *mut TF_Tensor,
) {
    callback(raw, [input, out], |ctx, [_, out]| elements::fill(ctx, &out));
}

pub(super) fn add(api: &'static OfficialApi, ctx: &mut Context) -> Result<()> {
    // SAFETY: context and status are valid for the call, and the callback runs only during the
    // call.
    with_context(ctx, |raw, status| unsafe { (api.TF_AddNVariant)(raw, add_tensors, status) })
}

pub(super) fn zeros_like(api: &'static OfficialApi, ctx: &mut Context) -> Result<()> {
    // SAFETY: as above.
    with_context(ctx, |raw, status| unsafe { (api.TF_ZerosLikeVariant)(raw, zero_tensor, status) })
}
