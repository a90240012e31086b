//! The report and the statistics for the Python package, as C strings. Works in processes with and
//! without TensorFlow.

use std::ffi::{CString, c_char};

use serde_json::Value;

use crate::device::paging;
use crate::ffi::graph;
use crate::ffi::guard::guard_or;
use crate::ffi::handle::{self, Handle};
use crate::ffi::plugin::{self, PluginDevice, init_logging};
use crate::ffi::{determinism, device_type, environment, symbols, variables};
use crate::report::{TensorFlow, devices, memory, report, statistics, tuning};

/// Returns [`report`] as NUL-terminated JSON, which [`tensorflow_wgpu_free`] frees, or null after a
/// bug, which is logged.
#[unsafe(no_mangle)]
extern "C" fn tensorflow_wgpu_report() -> *mut c_char {
    guard_or(std::ptr::null_mut(), "tensorflow_wgpu_report", || {
        init_logging();
        let version = symbols::tensorflow_version().map(str::to_owned);
        let variables = version.is_some().then(|| variables::availability().map(str::to_owned));
        let deterministic = match version {
            Some(_) => determinism::is_required(),
            // TensorFlow may be loaded later, and will be asked then.
            None => determinism::is_required_by_variable(),
        };
        let device_type = device_type::get();
        let tensorflow = TensorFlow { version, variables, deterministic, device_type };
        Ok(c_json(&report(&environment::all(), &tensorflow)))
    })
}

/// Returns the [`statistics`] of TensorFlow's devices in this process, as
/// [`tensorflow_wgpu_report`] does. The list is empty before TensorFlow has opened its devices.
#[unsafe(no_mangle)]
extern "C" fn tensorflow_wgpu_statistics() -> *mut c_char {
    guard_or(std::ptr::null_mut(), "tensorflow_wgpu_statistics", || {
        Ok(c_json(&statistics(opened().iter().map(|d| d.device.statistics()), device_type::get())))
    })
}

/// Returns the [`memory`] of TensorFlow's devices in this process, as [`tensorflow_wgpu_report`]
/// does.
#[unsafe(no_mangle)]
extern "C" fn tensorflow_wgpu_memory() -> *mut c_char {
    guard_or(std::ptr::null_mut(), "tensorflow_wgpu_memory", || {
        Ok(c_json(&memory(opened().iter().map(|d| d.device.memory_stats()), device_type::get())))
    })
}

/// Returns whether `TF_WGPU_PAGING` lets tensors live in host memory, as JSON.
#[unsafe(no_mangle)]
extern "C" fn tensorflow_wgpu_pages() -> *mut c_char {
    guard_or(std::ptr::null_mut(), "tensorflow_wgpu_pages", || {
        Ok(c_json(&paging::wanted(&|name| std::env::var(name).ok()).is_some().into()))
    })
}

/// Lets the peaks of [`tensorflow_wgpu_memory`] begin anew, for devices that page. Returns the
/// memory as that function does.
#[unsafe(no_mangle)]
extern "C" fn tensorflow_wgpu_reset_peaks() -> *mut c_char {
    guard_or(std::ptr::null_mut(), "tensorflow_wgpu_reset_peaks", || {
        let devices = opened();
        devices.iter().for_each(|d| d.device.reset_peak());
        Ok(c_json(&memory(devices.iter().map(|d| d.device.memory_stats()), device_type::get())))
    })
}

/// Returns the times by which contractions were tuned on TensorFlow's devices in this process
/// ([`tuning`]), as [`tensorflow_wgpu_report`] does.
#[unsafe(no_mangle)]
extern "C" fn tensorflow_wgpu_tuning() -> *mut c_char {
    guard_or(std::ptr::null_mut(), "tensorflow_wgpu_tuning", || {
        Ok(c_json(&tuning(opened().iter().map(|d| &*d.device), device_type::get())))
    })
}

/// Returns the adapters of TensorFlow's [`devices`] in this process, as [`tensorflow_wgpu_report`]
/// does. The list is empty before TensorFlow has opened its devices.
#[unsafe(no_mangle)]
extern "C" fn tensorflow_wgpu_devices() -> *mut c_char {
    guard_or(std::ptr::null_mut(), "tensorflow_wgpu_devices", || {
        Ok(c_json(&devices(opened().iter().map(|d| d.device.info()), device_type::get())))
    })
}

/// Returns the type by which TensorFlow knows the devices, as a JSON string, as
/// [`tensorflow_wgpu_report`] does.
#[unsafe(no_mangle)]
extern "C" fn tensorflow_wgpu_device_type() -> *mut c_char {
    guard_or(std::ptr::null_mut(), "tensorflow_wgpu_device_type", || {
        init_logging();
        Ok(c_json(&device_type::get().name().into()))
    })
}

/// Returns the errors because of which the optimizer left graphs of this process unchanged, as a
/// JSON list of strings, as [`tensorflow_wgpu_report`] does.
#[unsafe(no_mangle)]
extern "C" fn tensorflow_wgpu_unoptimized() -> *mut c_char {
    guard_or(std::ptr::null_mut(), "tensorflow_wgpu_unoptimized", || {
        Ok(c_json(&graph::left().into()))
    })
}

/// TensorFlow's devices. Without TensorFlow no device is open, and asking for the state would
/// search for adapters.
fn opened() -> &'static [Handle<PluginDevice>] {
    if symbols::tensorflow_version().is_some() { plugin::get().opened() } else { &[] }
}

/// Frees a text that [`tensorflow_wgpu_report`] or another of these functions returned.
///
/// # Safety
/// `text` must be null or come from one of these functions, and must be freed once.
#[unsafe(no_mangle)]
unsafe extern "C" fn tensorflow_wgpu_free(text: *mut c_char) {
    // SAFETY: the caller's contract.
    unsafe { handle::free_text(text) };
}

fn c_json(value: &Value) -> *mut c_char {
    // JSON escapes NUL.
    handle::give_text(CString::new(value.to_string()).unwrap_or_default())
}
