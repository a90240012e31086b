//! Variables: reads and updates of a value behind a handle, or in TensorFlow 1 behind a reference
//! ([`reference`]).
//!
//! The kernel C API has functions for this ([`official`]), which most releases of TensorFlow
//! export. 2.20, 2.21 and tensorflow-cpu 2.19 declare them but do not export them. There we call
//! the underlying C++ functions ([`cxx`]), by a table of releases, and check every symbol. A
//! release for which neither way works gets no device at all: DEVICE_DEFAULT's kernels would run
//! CPU code on device addresses.
//!
//! Both ways hold the variable's lock during an update. They never switch on `copy_on_read_mode`,
//! for TensorFlow's own ReadVariableOp cannot copy on a pluggable device. An update is in place
//! only if there is no other reference to the buffer.

mod cxx;
mod official;
mod reference;

use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::ffi::context::{Context, OUTPUT_ALIGNMENT};
use crate::ffi::tensor::OwnedTensor;
use crate::kernels::op::{OpContext, UpdateAll, VariableUpdate};
use crate::tensor::Tensor;

/// The way to reach variables in the running TensorFlow.
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

/// The API in use, or the reason why the running TensorFlow has none that fits.
pub(crate) fn availability() -> Result<&'static str, String> {
    match api() {
        Ok(Api::Official(_)) => Ok("official"),
        Ok(Api::Cxx(api)) => Ok(api.description()),
        Err(e) => Err(e.to_string()),
    }
}

/// The value of the variable at input `i`. It does not change until the kernel returns.
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
        Api::Cxx(api) if reference::is_one(ctx, i) => reference::update(api, ctx, i, mode, update),
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
        Api::Cxx(api) if inputs.iter().any(|i| reference::is_one(ctx, *i)) => {
            reference::update_all(api, ctx, inputs, update)
        }
        Api::Cxx(api) => cxx::update_all(api, ctx, inputs, update),
    }
}

/// Whether the running TensorFlow allows changes of reference variables.
pub(crate) fn serve_references() -> Result<()> {
    match api()? {
        Api::Official(api) => official::serve_references(api),
        Api::Cxx(_) => reference::members().map(|_| ()),
    }
}

/// Sets output 0 to the reference variable at input 0.
pub(crate) fn pass_reference(ctx: &Context) -> Result<()> {
    match api()? {
        Api::Official(api) => official::pass_reference(api, ctx),
        Api::Cxx(_) => reference::pass(ctx),
    }
}

/// Assigns the value at input 1 to the reference variable at input 0, and sets output 0 to that
/// variable.
pub(crate) fn assign_reference(ctx: &mut Context, same_shape: bool) -> Result<()> {
    match api()? {
        Api::Official(api) => official::assign_reference(api, ctx, same_shape),
        Api::Cxx(api) => reference::assign(api, ctx, same_shape),
    }
}

/// The lock is not re-entrant, and two inputs may be the same variable.
fn refuse_deadlock(ctx: &Context, i: usize) -> Result<()> {
    if ctx.locked().contains(&i) {
        return Err(Error::Internal(format!("variable {i} is used within its own update")));
    }
    Ok(())
}

/// The error for a handle without a variable, in the words of TensorFlow's ReadVariableOp.
fn not_found(why: &str) -> Error {
    Error::FailedPrecondition(format!(
        "Could not find variable. This could mean that the variable has been deleted. In TF1, it \
         can also mean the variable is uninitialized. Debug info: status error message={why}"
    ))
}

/// Updates, by way of a temporary, a variable whose buffer starts at an address that kernels cannot
/// write to, such as a slice of another tensor.
fn update_by_way_of_temporary(
    ctx: &mut Context,
    i: usize,
    mode: VariableUpdate,
    value: &Tensor,
    update: &mut dyn FnMut(&mut dyn OpContext, &Tensor, &Tensor) -> Result<()>,
) -> Result<()> {
    let temporary = ctx.temp(value.dtype, &value.dims)?;
    if mode == VariableUpdate::Sparse {
        ctx.device().copy(temporary.address, value.address, value.bytes())?;
    }
    ctx.with_locked(i, |ctx| update(ctx, value, &temporary))?;
    ctx.device().copy(value.address, temporary.address, value.bytes())
}

/// Updates the variables with the values `held`, which may be written, under their locks.
fn update_all_in_place<'t>(
    ctx: &mut Context,
    inputs: &[usize],
    held: impl Iterator<Item = &'t OwnedTensor>,
    update: &mut UpdateAll<'_>,
) -> Result<()> {
    let mut values: SmallVec<[Tensor; 4]> = SmallVec::new();
    let mut misaligned: SmallVec<[(Tensor, Tensor); 4]> = SmallVec::new();
    for tensor in held {
        let value = tensor.view()?;
        // The same variable occurs again.
        if let Some((_, temporary)) = misaligned.iter().find(|(v, _)| v.address == value.address) {
            values.push(temporary.clone());
            continue;
        }
        if value.address.is_multiple_of(OUTPUT_ALIGNMENT) {
            values.push(value);
            continue;
        }
        let temporary = ctx.temp(value.dtype, &value.dims)?;
        ctx.device().copy(temporary.address, value.address, value.bytes())?;
        values.push(temporary.clone());
        misaligned.push((value, temporary));
    }
    ctx.with_all_locked(inputs, |ctx| update(ctx, &values))?;
    for (value, temporary) in &misaligned {
        ctx.device().copy(value.address, temporary.address, value.bytes())?;
    }
    Ok(())
}
