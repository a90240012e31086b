//! Access to variables by the functions of kernels_experimental.h.
//!
//! TF_GetInputTensorFromVariable makes the variable safe to write. If there is another reference to
//! its buffer, it puts a fresh buffer into the variable and calls back to copy the value. A dense
//! update needs no such copy: the callback keeps the old buffer instead.

use std::cell::RefCell;
use std::ffi::c_int;
use std::rc::Rc;

use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::ffi::abi::kernel::{KernelApi, TF_OpKernelContext, TF_Tensor};
use crate::ffi::context::{Context, OUTPUT_ALIGNMENT};
use crate::ffi::status::{Status, TF_Status};
use crate::ffi::symbols::{missing, symbol_table};
use crate::ffi::tensor::OwnedTensor;
use crate::kernels::op::{OpContext, UpdateAll, VariableUpdate};
use crate::sys::guard::caught;
use crate::tensor::Tensor;

/// The locks on some variables.
#[derive(Debug)]
#[repr(C)]
pub(super) struct TF_VariableInputLockHolder {
    opaque: [u8; 0],
}

/// Copies a tensor; takes ownership of both arguments.
type CopyFn = unsafe extern "C" fn(*mut TF_OpKernelContext, *mut TF_Tensor, *mut TF_Tensor);

symbol_table! {
    /// Functions of kernels_experimental.h.
    pub(super) struct OfficialApi {
        required {
            TF_MaybeLockVariableInputMutexesInOrder: unsafe extern "C" fn(
                *mut TF_OpKernelContext, bool, bool, *const c_int, usize, CopyFn,
                *mut *mut TF_VariableInputLockHolder, *mut TF_Status,
            ),
            TF_GetInputTensorFromVariable: unsafe extern "C" fn(
                *mut TF_OpKernelContext, c_int, bool, bool, bool, CopyFn, *mut *mut TF_Tensor,
                    *mut TF_Status,
            ),
            TF_ReleaseVariableInputLockHolder:
                unsafe extern "C" fn(*mut TF_VariableInputLockHolder),
        }
        optional {
            TF_OpKernelContext_ForwardRefInputToRefOutput:
                unsafe extern "C" fn(*mut TF_OpKernelContext, i32, i32),
            TF_AssignRefVariable: unsafe extern "C" fn(
                *mut TF_OpKernelContext, c_int, c_int, c_int, bool, bool, CopyFn, *mut TF_Status,
            ),
        }
    }
}

/// The action of the copy callback on this thread; TensorFlow passes it no argument of ours.
enum OnCopy {
    /// Copy at once.
    Copy(*const Context),
    /// Keep the source.
    Keep,
    Kept(OwnedTensor),
    Failed(Error),
}

thread_local! {
    static ON_COPY: RefCell<Option<OnCopy>> = const { RefCell::new(None) };
}

unsafe extern "C" fn copy(
    _: *mut TF_OpKernelContext,
    source: *mut TF_Tensor,
    dest: *mut TF_Tensor,
) {
    let done = caught("a variable's copy", || {
        let (api, status) = (KernelApi::get()?, Status::new()?);
        // SAFETY: by the header, the callback owns both tensors and deletes them.
        let (source, dest) = unsafe {
            (OwnedTensor::new(api, source, &status)?, OwnedTensor::new(api, dest, &status)?)
        };
        ON_COPY.with_borrow_mut(|on_copy| {
            match on_copy {
                Some(OnCopy::Copy(ctx)) => {
                    // SAFETY: the function that stored the context waits for this callback.
                    let device = unsafe { (**ctx).device() };
                    let from = source.view()?;
                    // A variable may be assigned its own value.
                    if dest.address() != from.address {
                        device.copy(dest.address(), from.address, from.bytes())?;
                    }
                }
                Some(OnCopy::Keep) => *on_copy = Some(OnCopy::Kept(source)),
                _ => {
                    return Err(Error::Internal(
                        "TensorFlow asks for a copy out of turn".to_owned(),
                    ));
                }
            }
            Ok(())
        })
    });
    if let Err(e) = done {
        ON_COPY.with_borrow_mut(|on_copy| *on_copy = Some(OnCopy::Failed(e)));
    }
}

/// The locks of some variables, released on drop.
struct Lock {
    api: &'static OfficialApi,
    holder: *mut TF_VariableInputLockHolder,
}

impl Lock {
    fn take(api: &'static OfficialApi, ctx: &Context, inputs: &[usize]) -> Result<Self> {
        let mut holder = std::ptr::null_mut();
        let inputs: SmallVec<[c_int; 4]> = inputs.iter().map(|i| *i as c_int).collect();
        // SAFETY: context, inputs, holder and status are valid for the call. `sparse` is always
        // false: true would switch on copy-on-read, which TensorFlow's ReadVariableOp cannot do on
        // this device.
        unsafe {
            (api.TF_MaybeLockVariableInputMutexesInOrder)(
                ctx.raw(),
                true,
                false,
                inputs.as_ptr(),
                inputs.len(),
                copy,
                &raw mut holder,
                ctx.status().as_ptr(),
            );
        }
        let lock = Self { api, holder };
        ctx.status().take()?;
        Ok(lock)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if !self.holder.is_null() {
            // SAFETY: the holder is ours, and is released once.
            unsafe { (self.api.TF_ReleaseVariableInputLockHolder)(self.holder) };
        }
    }
}

/// The variable's tensor, safe to write. With `keep`, also its old tensor, if TensorFlow replaced
/// it.
fn locked_tensor(
    api: &'static OfficialApi,
    ctx: &Context,
    i: usize,
    keep: bool,
) -> Result<(OwnedTensor, Option<OwnedTensor>)> {
    ON_COPY.set(Some(if keep { OnCopy::Keep } else { OnCopy::Copy(ctx) }));
    let mut raw = std::ptr::null_mut();
    // SAFETY: context, tensor pointer and status are valid for the call, and the callback runs only
    // during the call. The lock is held; the value is no variant.
    unsafe {
        (api.TF_GetInputTensorFromVariable)(
            ctx.raw(),
            i as c_int,
            true,
            false,
            false,
            copy,
            &raw mut raw,
            ctx.status().as_ptr(),
        );
    }
    let on_copy = ON_COPY.take();
    ctx.status().take()?;
    if raw.is_null() {
        // The context carries TensorFlow's own error already; this one follows it.
        return Err(super::not_found("TensorFlow returned no tensor"));
    }
    // SAFETY: the function wrote an owned tensor.
    let tensor = unsafe { OwnedTensor::new(ctx.api(), raw, ctx.status()) }?;
    match on_copy {
        Some(OnCopy::Kept(old)) => Ok((tensor, Some(old))),
        Some(OnCopy::Failed(e)) => Err(e),
        _ => Ok((tensor, None)),
    }
}

pub(super) fn read(api: &'static OfficialApi, ctx: &mut Context, i: usize) -> Result<Tensor> {
    let lock = Lock::take(api, ctx, &[i])?;
    let (tensor, _) = locked_tensor(api, ctx, i, false)?;
    drop(lock);
    let view = tensor.view()?;
    ctx.hold(view.address, tensor);
    Ok(view)
}

pub(super) fn update(
    api: &'static OfficialApi,
    ctx: &mut Context,
    i: usize,
    mode: VariableUpdate,
    update: &mut dyn FnMut(&mut dyn OpContext, &Tensor, &Tensor) -> Result<()>,
) -> Result<()> {
    let _lock = Lock::take(api, ctx, &[i])?;
    let (new, old) = locked_tensor(api, ctx, i, mode == VariableUpdate::Dense)?;
    let new_view = new.view()?;
    let Some(old) = old else {
        return if new_view.address.is_multiple_of(OUTPUT_ALIGNMENT) {
            ctx.with_locked(i, |ctx| update(ctx, &new_view, &new_view))
        } else {
            super::update_by_way_of_temporary(ctx, i, mode, &new_view, update)
        };
    };
    let old_view = old.view()?;
    let updated = ctx.with_locked(i, |ctx| update(ctx, &old_view, &new_view));
    if updated.is_err() {
        // The variable holds the new buffer already: copy the old value into it.
        ctx.device().copy(new_view.address, old_view.address, old_view.bytes())?;
    }
    updated
}

pub(super) fn update_all(
    api: &'static OfficialApi,
    ctx: &mut Context,
    inputs: &[usize],
    update: &mut UpdateAll<'_>,
) -> Result<()> {
    // TensorFlow takes the locks in the order of their addresses, and each once.
    let _lock = Lock::take(api, ctx, inputs)?;
    let mut held: SmallVec<[Rc<OwnedTensor>; 4]> = SmallVec::new();
    for i in inputs {
        // A variable whose buffer we hold already occurs twice in the inputs: it has a fresh buffer
        // now.
        let (tensor, old) = locked_tensor(api, ctx, *i, true)?;
        let tensor = Rc::new(tensor);
        if let Some(old) = old {
            let (new, old) = (tensor.view()?, old.view()?);
            ctx.device().copy(new.address, old.address, old.bytes())?;
            let is_same = |before: &OwnedTensor| before.address() == old.address && !old.is_empty();
            for before in held.iter_mut().filter(|before| is_same(before)) {
                *before = Rc::clone(&tensor);
            }
        }
        held.push(tensor);
    }
    super::update_all_in_place(ctx, inputs, held.iter().map(Rc::as_ref), update)
}

/// Whether the functions for reference variables exist. The functions for handles work on these
/// variables, too.
pub(super) fn serve_references(api: &OfficialApi) -> Result<()> {
    match (api.TF_OpKernelContext_ForwardRefInputToRefOutput, api.TF_AssignRefVariable) {
        (Some(_), Some(_)) => Ok(()),
        _ => Err(missing("TF_AssignRefVariable")),
    }
}

pub(super) fn pass_reference(api: &OfficialApi, ctx: &Context) -> Result<()> {
    let Some(forward) = api.TF_OpKernelContext_ForwardRefInputToRefOutput else {
        return Err(missing("TF_OpKernelContext_ForwardRefInputToRefOutput"));
    };
    // SAFETY: the context is valid; input and output 0 of the op are references.
    unsafe { forward(ctx.raw(), 0, 0) };
    Ok(())
}

pub(super) fn assign_reference(api: &OfficialApi, ctx: &Context, same_shape: bool) -> Result<()> {
    let Some(assign) = api.TF_AssignRefVariable else {
        return Err(missing("TF_AssignRefVariable"));
    };
    ON_COPY.set(Some(OnCopy::Copy(ctx)));
    let status = ctx.status().as_ptr();
    // SAFETY: context and status are valid for the call, and the callback runs only during the
    // call. Input 0 and output 0 of Assign are references, input 1 is the value.
    unsafe { assign(ctx.raw(), 0, 0, 1, true, same_shape, copy, status) };
    let on_copy = ON_COPY.take();
    ctx.status().take()?;
    match on_copy {
        Some(OnCopy::Failed(e)) => Err(e),
        _ => Ok(()),
    }
}
