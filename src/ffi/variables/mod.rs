//! Resource variables: reading and updating a value that lives behind a handle.
//!
//! The kernel C API of TensorFlow 2.19 and older exports functions for this ([`official`]). Later
//! releases declare but do not export them, so there we call the C++ functions behind them
//! ([`cxx`]), by a table of versions whose every symbol is checked. A version for which neither
//! works gets no device at all: DEVICE_DEFAULT's kernels would run CPU code on device addresses.
//!
//! Both hold the variable's lock during an update and never switch on `copy_on_read_mode`, for
//! TensorFlow's own ReadVariableOp cannot copy on a pluggable device. In place only while nobody
//! else refers to the buffer.

mod cxx;
mod official;

use crate::error::{Error, Result};
use crate::ffi::kernel::context::Context;
use crate::kernels::op::{OpContext, UpdateAll, VariableUpdate};
use crate::tensor::Tensor;

/// The way into variables that the running TensorFlow offers.
enum Api {
    Official(&'static official::OfficialApi),
    Cxx(&'static cxx::CxxApi),
}

fn api() -> Result<Api> {
    match official::OfficialApi::get() {
        Ok(api) => Ok(Api::Official(api)),
        Err(_) => cxx::api().map(Api::Cxx),
    }
}

/// Which API is in use, or why the running TensorFlow has none that fits.
pub(crate) fn availability() -> Result<&'static str, String> {
    match api() {
        Ok(Api::Official(_)) => Ok("official"),
        Ok(Api::Cxx(api)) => Ok(api.description()),
        Err(e) => Err(e.to_string()),
    }
}

/// The value of the variable at input `i`. It stays as it is until the kernel returns.
pub(crate) fn read(ctx: &mut Context, i: usize) -> Result<Tensor> {
    refuse_deadlock(ctx, i)?;
    match api()? {
        Api::Official(api) => official::read(api, ctx, i),
        Api::Cxx(api) => cxx::read(api, ctx, i),
    }
}

/// Updates the variable at input `i` under its lock.
pub(crate) fn update(
    ctx: &mut Context,
    i: usize,
    mode: VariableUpdate,
    update: &mut dyn FnMut(&mut dyn OpContext, &Tensor, &Tensor) -> Result<()>,
) -> Result<()> {
    refuse_deadlock(ctx, i)?;
    match api()? {
        Api::Official(api) => official::update(api, ctx, i, mode, update),
        Api::Cxx(api) => cxx::update(api, ctx, i, mode, update),
    }
}

/// Updates the variables at `inputs` in place under all of their locks.
pub(crate) fn update_all(
    ctx: &mut Context,
    inputs: &[usize],
    update: &mut UpdateAll<'_>,
) -> Result<()> {
    for i in inputs {
        refuse_deadlock(ctx, *i)?;
    }
    match api()? {
        Api::Official(api) => official::update_all(api, ctx, inputs, update),
        Api::Cxx(api) => cxx::update_all(api, ctx, inputs, update),
    }
}

/// The lock is not re-entrant, and two inputs may be the same variable.
fn refuse_deadlock(ctx: &Context, i: usize) -> Result<()> {
    if ctx.locked().contains(&i) {
        return Err(Error::Internal(format!("variable {i} is used within its own update")));
    }
    Ok(())
}

/// The error for a handle without a variable behind it, in the words of TensorFlow's
/// ReadVariableOp.
fn not_found(why: &str) -> Error {
    Error::FailedPrecondition(format!(
        "Could not find variable. This could mean that the variable has been deleted. In TF1, it \
         can also mean the variable is uninitialized. Debug info: status error message={why}"
    ))
}
