//! Values of type variant, and TensorFlow's own kernels of ops on them.
//!
//! A variant is a C++ object in host memory. The variants that reach a device are TensorLists and
//! the optionals of conditionals; their tensors live on the device. The C API of TensorFlow 2.18
//! and older, and of the package tensorflow 2.19, exports a sum and a zero of variants that call
//! back for each tensor ([`official`]). Other releases do not export these functions, or not in
//! working order. There we read and build the values in memory ([`value`], [`cxx`]),
//! by a table of releases, and check every symbol. A value counts as a list only if its virtual
//! table is the one that TensorFlow exports for lists. Nothing is assumed about any other value.
//!
//! In both cases our own kernels compute the tensors' sums and zeros ([`elements`]).
//!
//! TensorFlow's kernels of the other ops on lists leave all work on tensors to the device's copies
//! and fills. DEVICE_DEFAULT registers these kernels for a few types only; [`native`] runs them for
//! the others.
//!
//! If any of this does not fit the running TensorFlow, the ops that need it are not registered and
//! run on the CPU.

mod cxx;
mod elements;
mod native;
mod official;
mod release;
mod tensors;
mod value;

use crate::error::Result;
use crate::ffi::abi::kernel::TF_OpKernelConstruction;
use crate::ffi::context::Context;
use crate::ffi::status::Status;
use crate::kernels::op::Kernel;

/// The way to reach variants in the running TensorFlow.
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

/// Whether the running TensorFlow lets us read and make values of type variant.
pub(crate) fn serve_values() -> Result<()> {
    api().map(|_| ())
}

/// Whether TensorFlow's own kernels can be created in the running TensorFlow.
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

/// Sets output 0 to input 0 with zeros in the place of all numbers.
pub(crate) fn zeros_like(ctx: &mut Context) -> Result<()> {
    match api()? {
        Api::Official(api) => official::zeros_like(api, ctx),
        Api::Cxx(api) => cxx::zeros_like(api, ctx),
    }
}

/// TensorFlow's own kernel for the node under construction.
///
/// # Safety
/// `construction` must be the pointer that TensorFlow passed to the create function under way.
pub(crate) unsafe fn tensorflow_kernel(
    construction: *mut TF_OpKernelConstruction,
    status: &Status,
) -> Result<Box<dyn Kernel>> {
    // SAFETY: the caller's contract.
    let kernel = unsafe { native::Native::new(release::kernels()?, construction, status) }?;
    Ok(Box::new(kernel))
}
