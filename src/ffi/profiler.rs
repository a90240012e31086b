//! The profiler C API: `TF_InitProfiler` and the functions of the profiler, around
//! [`crate::profiler`]. Also the sessions of the Python package.

use std::ffi::{CString, c_char};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::ffi::abi::profiler::{
    TF_ProfilerRegistrationParams, TP_MAJOR, TP_Profiler, TP_ProfilerFns,
};
use crate::ffi::guard::{guard_or, guard_status};
use crate::ffi::handle::{self, Handle};
use crate::ffi::plugin::{self, PluginDevice};
use crate::ffi::status::TF_Status;
use crate::ffi::symbols;
use crate::ffi::{device_type, second_copy};
use crate::profiler::xspace::LineIds;
use crate::profiler::{Traced, record, xspace};

/// Entry point of the profiler C API.
///
/// An error here would abort `import tensorflow`, so none is reported: a profiler that cannot be
/// registered shows nothing.
///
/// # Safety
/// TensorFlow passes pointers to structs of its own, which are valid for the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn TF_InitProfiler(
    params: *mut TF_ProfilerRegistrationParams,
    status: *mut TF_Status,
) {
    let _ = status;
    // SAFETY: TensorFlow's pointer, or null.
    guard_or((), "TF_InitProfiler", || unsafe { register(params) });
}

/// # Safety
/// `params` is null or points to TensorFlow's parameters. They have `struct_size` bytes, and so do
/// the structs behind them.
unsafe fn register(params: *mut TF_ProfilerRegistrationParams) -> Result<()> {
    if params.is_null() {
        return Err(Error::InvalidArgument("no registration parameters".into()));
    }
    // SAFETY: the caller's contract: every struct begins with its size, and only bytes within that
    // size are read or written.
    unsafe {
        let size = (*params).struct_size;
        if size < TF_ProfilerRegistrationParams::STRUCT_SIZE {
            return Err(Error::FailedPrecondition(format!(
                "TensorFlow's registration parameters have {size} bytes only"
            )));
        }
        let (profiler, functions) = ((*params).profiler, (*params).profiler_fns);
        if profiler.is_null() || functions.is_null() {
            return Err(Error::InvalidArgument(
                "no TP_Profiler or no TP_ProfilerFns to fill".into(),
            ));
        }
        let fits = (*profiler).struct_size >= TP_Profiler::STRUCT_SIZE
            && (*functions).struct_size >= TP_ProfilerFns::STRUCT_SIZE
            && (*params).major_version == TP_MAJOR;
        if !fits {
            return Err(Error::Unimplemented(format!(
                "TensorFlow's profiler C API {}.{}.{} does not fit this plugin, which knows \
                 {TP_MAJOR}.0.1",
                (*params).major_version,
                (*params).minor_version,
                (*params).patch_version
            )));
        }
        (*profiler).struct_size = TP_Profiler::STRUCT_SIZE;
        (*profiler).device_type = second_copy::device_type().as_ptr();
        (*functions).struct_size = TP_ProfilerFns::STRUCT_SIZE;
        (*functions).start = Some(start);
        (*functions).stop = Some(stop);
        (*functions).collect_data_xspace = Some(collect);
        (*params).destroy_profiler = Some(destroy_profiler);
        (*params).destroy_profiler_fns = Some(destroy_functions);
    }
    Ok(())
}

/// The data of the last session, as an XSpace, until TensorFlow takes it.
static COLLECTED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

unsafe extern "C" fn start(_profiler: *const TP_Profiler, status: *mut TF_Status) {
    guard_status(status, "the profiler's start", || {
        COLLECTED.lock().clear();
        begin()
    });
}

unsafe extern "C" fn stop(_profiler: *const TP_Profiler, status: *mut TF_Status) {
    guard_status(status, "the profiler's stop", || {
        let traced = end();
        *COLLECTED.lock() = xspace::encode(&traced?, line_ids());
        Ok(())
    });
}

/// Reports the size of the XSpace if `buffer` is null, else copies it there.
///
/// # Safety
/// `size` is valid; `buffer` is null or has `*size` bytes.
unsafe extern "C" fn collect(
    _profiler: *const TP_Profiler,
    buffer: *mut u8,
    size: *mut usize,
    status: *mut TF_Status,
) {
    guard_status(status, "the profiler's data", || {
        if size.is_null() {
            return Err(Error::InvalidArgument("no size to fill".into()));
        }
        let mut collected = COLLECTED.lock();
        // SAFETY: the caller's contract; no more is written than the buffer has room for.
        unsafe {
            let room = size.replace(collected.len());
            if buffer.is_null() {
                return Ok(());
            }
            if room < collected.len() {
                return Err(Error::InvalidArgument(format!(
                    "the buffer has {room} bytes, the trace {}",
                    collected.len()
                )));
            }
            std::ptr::copy_nonoverlapping(collected.as_ptr(), buffer, collected.len());
        }
        *collected = Vec::new();
        Ok(())
    });
}

/// The struct holds nothing of ours to free.
unsafe extern "C" fn destroy_profiler(_profiler: *mut TP_Profiler) {}

/// The struct holds nothing of ours to free.
unsafe extern "C" fn destroy_functions(_functions: *mut TP_ProfilerFns) {}

/// The kind of line ids that the running TensorFlow uses for threads.
fn line_ids() -> LineIds {
    let version = symbols::tensorflow_version().unwrap_or_default();
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(u32::MAX));
    let version = (parts.next().unwrap_or(u32::MAX), parts.next().unwrap_or(u32::MAX));
    if version < (2, 19) { LineIds::Half } else { LineIds::Whole }
}

/// TensorFlow's devices; empty without TensorFlow.
fn devices() -> &'static [Handle<PluginDevice>] {
    if symbols::tensorflow_version().is_some() { plugin::get().devices() } else { &[] }
}

/// Begins a session on every device, or on none if one fails.
fn begin() -> Result<()> {
    for (i, device) in devices().iter().enumerate() {
        if let Err(e) = device.device.trace() {
            for begun in &devices()[..i] {
                let _ = begun.device.end_trace();
            }
            return Err(e);
        }
    }
    Ok(())
}

/// Ends the sessions. A lost device is left out, and its error is logged.
fn end() -> Result<Vec<Traced>> {
    let mut traced = Vec::new();
    for (ordinal, device) in devices().iter().enumerate() {
        match device.device.end_trace() {
            Ok(Some(trace)) => {
                traced.push(Traced { ordinal, adapter: device.device.info().name.clone(), trace });
            }
            Ok(None) => {}
            Err(e) => {
                log::error!("{} has no profile: {e}", device_type::get().device(ordinal));
            }
        }
    }
    Ok(traced)
}

/// Begins a session for the Python package. Returns null, or the text of the error, which
/// `tensorflow_wgpu_free` frees.
#[unsafe(no_mangle)]
extern "C" fn tensorflow_wgpu_profile_start() -> *mut c_char {
    match guard_or(Ok(()), "tensorflow_wgpu_profile_start", || Ok(begin())) {
        Ok(()) => std::ptr::null_mut(),
        Err(e) => text(e.to_string()),
    }
}

/// Ends the session. Returns [`record::json`], which `tensorflow_wgpu_free` frees, or null after a
/// bug, which is logged.
#[unsafe(no_mangle)]
extern "C" fn tensorflow_wgpu_profile_stop() -> *mut c_char {
    guard_or(std::ptr::null_mut(), "tensorflow_wgpu_profile_stop", || {
        Ok(text(record::json(&end()?, device_type::get()).to_string()))
    })
}

/// JSON escapes NUL, and messages have none.
fn text(text: String) -> *mut c_char {
    handle::give_text(CString::new(text.replace('\0', " ")).unwrap_or_default())
}
