//! The report for the Python package, as a C string. Works in processes with and without TensorFlow.

use std::ffi::{CString, c_char};

use crate::ffi::guard::guard_or;
use crate::ffi::plugin::init_logging;
use crate::ffi::{symbols, variables};
use crate::report::{TensorFlow, report};

/// Returns [`report`] as NUL-terminated JSON, which [`tensorflow_wgpu_free`] frees, or null after a bug, which is logged.
#[unsafe(no_mangle)]
extern "C" fn tensorflow_wgpu_report() -> *mut c_char {
    guard_or(std::ptr::null_mut(), "tensorflow_wgpu_report", || {
        init_logging();
        let lookup = |name: &str| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned());
        let version = symbols::tensorflow_version().map(str::to_owned);
        let variables = version.is_some().then(|| variables::availability().map(str::to_owned));
        let tensorflow = TensorFlow { version, variables };
        // JSON escapes NUL.
        let json = CString::new(report(&lookup, &tensorflow).to_string()).unwrap_or_default();
        Ok(json.into_raw())
    })
}

/// Frees what [`tensorflow_wgpu_report`] returned.
///
/// # Safety
/// `report` must be null or come from [`tensorflow_wgpu_report`], once.
#[unsafe(no_mangle)]
unsafe extern "C" fn tensorflow_wgpu_free(report: *mut c_char) {
    if !report.is_null() {
        // SAFETY: the caller's contract: it is a CString that `into_raw` gave away.
        drop(unsafe { CString::from_raw(report) });
    }
}
