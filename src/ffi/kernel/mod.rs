//! The kernel C API: `TF_InitKernel` registers every row of the kernel registry for the device
//! type. The functions in [`trampoline`] make and run the nodes' kernels.

mod attrs;
pub(crate) mod definitions;
mod op_context;
mod op_list;
mod shapes;
mod trampoline;

use std::ffi::CString;
use std::time::Instant;

use op_list::{Fit, OpList};

use crate::device_type::DeviceType;
use crate::error::{Error, Result};
use crate::ffi::abi::kernel::KernelApi;
use crate::ffi::ops::{OPS, by_op};
use crate::ffi::status::Status;
use crate::ffi::{device_type, guard, plugin, variables, variants};
use crate::kernels::registry::{Need, Registration, Registry};

/// The kernels' priority if they are registered for `GPU`. Even without CUDA, TensorFlow has a few
/// kernels of priority 0 and 1 for that type, and it refuses a node that fits two kernels of one
/// priority.
const GPU_PRIORITY: i32 = 2;

/// Entry point of the kernel C API. Never fails: an error here would abort `import tensorflow`.
#[unsafe(no_mangle)]
pub extern "C" fn TF_InitKernel() {
    guard::guard_or((), "TF_InitKernel", register_all);
}

fn register_all() -> Result<()> {
    let Some(capabilities) = plugin::common_capabilities() else {
        return Ok(());
    };
    let start = Instant::now();
    let api = KernelApi::get()?;
    let registry = Registry::new(capabilities);
    let mut first = false;
    let ops = OPS.get_or_init(|| {
        first = true;
        by_op(registry.rows())
    });
    if !first {
        return Ok(());
    }
    let mut known = OpList::get(api);
    definitions::register(known.as_mut());
    let mut registered = 0;
    for (slot, op) in ops.iter().enumerate() {
        for row in &op.rows {
            if let Err(e) = row.need.map_or(Ok(()), serves) {
                log::debug!("{row:?} is not registered: {e}");
                continue;
            }
            match known.as_ref().map_or(Fit::Yes, |list| list.fit(row)) {
                Fit::Yes => match register(api, slot, row) {
                    Ok(()) => registered += 1,
                    Err(e) => log::warn!("{row:?} is not registered: {e}"),
                },
                Fit::UnknownOp => log::debug!("this TensorFlow has no op {}", op.name),
                Fit::No(why) => log::warn!("{row:?} is not registered: {why}"),
            }
        }
    }
    log::debug!(
        "{registered} of {} kernels registered, for {} ops, in {:.0?}",
        registry.rows().len(),
        ops.len(),
        start.elapsed()
    );
    Ok(())
}

/// Whether the running TensorFlow offers the functions that some kernels need.
fn serves(need: Need) -> Result<()> {
    match need {
        Need::Variants => variants::serve_values(),
        Need::TensorFlowKernel => variants::serve_kernels(),
        Need::References => variables::serve_references(),
    }
}

fn register(api: &KernelApi, slot: usize, row: &Registration) -> Result<()> {
    let create = trampoline::create_function(slot).ok_or_else(|| {
        Error::Internal(format!("more than {} ops; enlarge the trampoline", trampoline::SLOTS))
    })?;
    let op = c_string(row.op)?;
    let status = Status::new()?;
    let device_type = device_type::get();
    // SAFETY: both names are NUL-terminated and copied; the three functions follow the contracts of
    // their types.
    let builder = unsafe {
        (api.TF_NewKernelBuilder)(
            op.as_ptr(),
            device_type.c_name().as_ptr(),
            create,
            trampoline::compute,
            trampoline::delete,
        )
    };
    if builder.is_null() {
        return Err(Error::ResourceExhausted("TF_NewKernelBuilder returned null".into()));
    }
    let described = || -> Result<()> {
        if let (DeviceType::Gpu, Some(prioritize)) = (device_type, api.TF_KernelBuilder_Priority) {
            // SAFETY: the builder is valid for the call.
            unsafe { prioritize(builder, GPU_PRIORITY) };
        }
        for (attr, dtype) in &row.types {
            let attr = c_string(attr)?;
            // SAFETY: builder, name and status are valid for the call.
            unsafe {
                (api.TF_KernelBuilder_TypeConstraint)(
                    builder,
                    attr.as_ptr(),
                    *dtype as i32,
                    status.as_ptr(),
                );
            }
            status.take()?;
        }
        for argument in row.host_memory {
            let argument = c_string(argument)?;
            // SAFETY: builder and name are valid for the call.
            unsafe { (api.TF_KernelBuilder_HostMemory)(builder, argument.as_ptr()) };
        }
        Ok(())
    };
    if let Err(e) = described() {
        // SAFETY: the builder is ours until it is registered.
        unsafe { (api.TF_DeleteKernelBuilder)(builder) };
        return Err(e);
    }
    // SAFETY: name, builder and status are valid; TensorFlow takes the builder even if the status
    // is an error.
    unsafe { (api.TF_RegisterKernelBuilder)(op.as_ptr(), builder, status.as_ptr()) };
    status.take()
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::Internal(format!("{text:?} holds a NUL")))
}
