//! Values of type variant, and TensorFlow's own kernels of their ops.
//!
//! A variant is a C++ object in host memory. TensorLists and the optionals of conditionals reach a
//! device, where their tensors live. The C API of TensorFlow 2.18 and
//! older exports a sum and a zero of variants that call back for each tensor ([`official`]). Later
//! releases do not export them, or not in working order, so there we read and build the values in
//! memory ([`list`], [`optional`], [`cxx`]), by a table of releases whose every symbol is checked.
//! A value is taken for a list only if its virtual table is the one that TensorFlow exports for
//! lists, and nothing is taken for granted of any other.
//!
//! What happens to the tensors themselves ([`elements`]) are kernels of ours in both cases.
//!
//! The other ops on lists have kernels in TensorFlow that leave all work on tensors to the device's
//! copies and fills, but DEVICE_DEFAULT registers them for few types; [`native`] runs them for
//! others.
//!
//! Where any of this does not fit the running TensorFlow, its ops are not registered: they run on
//! the CPU.

mod cxx;
mod elements;
mod native;
mod official;
mod release;
mod tensors;
mod value;

use crate::error::Result;
use crate::ffi::abi::kernel::TF_OpKernelConstruction;
use crate::ffi::kernel::context::Context;
use crate::ffi::status::Status;
use crate::kernels::op::Kernel;

/// The way into variants that the running TensorFlow offers.
enum Api {
    Official(&'static official::OfficialApi),
    Cxx(&'static release::ListApi),
}

fn api() -> Result<Api> {
    match official::OfficialApi::get() {
        Ok(api) if release::official_serve() => Ok(Api::Official(api)),
        _ => release::lists().map(Api::Cxx),
    }
}

/// Whether values of type variant can be read and made in the running TensorFlow.
pub(crate) fn serve_values() -> Result<()> {
    api().map(|_| ())
}

/// Whether the running TensorFlow's own kernels can be made.
pub(crate) fn serve_kernels() -> Result<()> {
    release::kernels().map(|_| ())
}

/// Sets output 0 to the sum of all inputs.
pub(crate) fn add(ctx: &mut Context) -> Result<()> {
    let api = api()?;
    if ctx.num_inputs() == 1 {
        let only = ctx.get_input(0)?;
        return ctx.set_output(0, &only);
    }
    match api {
        Api::Official(api) => official::add(api, ctx),
        Api::Cxx(api) => cxx::add(api, ctx),
    }
}

/// Sets output 0 to input 0 with zeros for all numbers.
pub(crate) fn zeros_like(ctx: &mut Context) -> Result<()> {
    match api()? {
        Api::Official(api) => official::zeros_like(api, ctx),
        Api::Cxx(api) => cxx::zeros_like(api, ctx),
    }
}

/// The kernel that TensorFlow has for the node under construction.
///
/// # Safety
/// `construction` must be what TensorFlow passed to the create function under way.
pub(crate) unsafe fn tensorflow_kernel(
    construction: *mut TF_OpKernelConstruction,
    status: &Status,
) -> Result<Box<dyn Kernel>> {
    // SAFETY: the caller's contract.
    let kernel = unsafe { native::Native::new(release::kernels()?, construction, status) }?;
    Ok(Box::new(kernel))
}
