//! The Python process around the plugin, if there is one: imports what keeps Keras from asking for
//! XLA, and forked children from waiting for ever.
//!
//! TensorFlow has no hook for this; the plugin's load is the only moment that every program passes.
//! Owns that one import.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::ffi::process;
use crate::ffi::symbols::symbol_table;

/// What is imported. Importing it installs the hooks.
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
/// nothing happens, without the package Keras needs `jit_compile=False`, which is said.
pub(crate) fn install_hooks() {
    // TensorFlow in C++ or another language: no Keras.
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
            // The traceback on stderr, and no exception any more.
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
