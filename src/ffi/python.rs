//! The Python process around the plug-in, if there is one. Imports the hooks that keep Keras from
//! asking for XLA, and forked children from waiting forever.
//!
//! TensorFlow has no hook for this, and every program loads the plug-in, so the load is the moment
//! to do it. This module owns that one import.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::ffi::process;
use crate::ffi::symbols::symbol_table;

/// The module to import. Importing it installs the hooks.
const MODULE: &CStr = c"tensorflow_wgpu._hooks";

symbol_table! {
    /// Functions of Python's stable ABI.
    struct PythonApi {
        required {
            Py_IsInitialized: unsafe extern "C" fn() -> c_int,
            PyGILState_Ensure: unsafe extern "C" fn() -> c_int,
            PyGILState_Release: unsafe extern "C" fn(c_int),
            PyImport_ImportModule: unsafe extern "C" fn(*const c_char) -> *mut c_void,
            PyErr_Print: unsafe extern "C" fn(),
            Py_DecRef: unsafe extern "C" fn(*mut c_void),
            Py_AtExit: unsafe extern "C" fn(extern "C" fn()) -> c_int
        }
        optional {}
    }
}

/// Imports the package's hooks into the Python that runs this process. Never fails: without Python
/// it does nothing. Without the package Keras needs `jit_compile=False`, and a warning says so.
pub(crate) fn install_hooks() {
    // TensorFlow runs from C++ or another language: there is no Keras.
    let Ok(python) = PythonApi::get() else { return };
    // SAFETY: Py_IsInitialized may be called at any time. PyGILState_Ensure needs an initialized
    // interpreter, works whether or not this thread holds the lock, and is paired with
    // PyGILState_Release. PyImport_ImportModule takes a NUL-terminated name under the lock and
    // returns a new reference, or null with an exception set. Py_AtExit takes a function that needs
    // no Python.
    let imported = unsafe {
        if (python.Py_IsInitialized)() == 0 {
            return;
        }
        let state = (python.PyGILState_Ensure)();
        let module = (python.PyImport_ImportModule)(MODULE.as_ptr());
        if module.is_null() {
            // Prints the traceback to stderr and clears the exception.
            (python.PyErr_Print)();
        } else {
            (python.Py_DecRef)(module);
        }
        // The C library's handlers run later. A handler that a driver has registered by then runs
        // before ours.
        let _ = (python.Py_AtExit)(process::at_python_exit);
        (python.PyGILState_Release)(state);
        !module.is_null()
    };
    if !imported {
        log::warn!(
            "the Python package tensorflow_wgpu cannot be imported (the error is above); Keras \
             models need compile(jit_compile=False), and TF_WGPU_FALLBACK and TF_WGPU_JIT have no \
             effect"
        );
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_without_python_is_left_alone() {
        super::install_hooks();
    }
}
