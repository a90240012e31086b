//! The Python process around the plugin, if there is one: imports what keeps Keras from asking for XLA.
//!
//! TensorFlow has no hook for this; the plugin's load is the only moment that every program passes. Owns that one import.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::ffi::symbols::symbol_table;

/// What is imported. Importing it installs the hooks.
const MODULE: &CStr = c"tensorflow_wgpu._keras_hook";

symbol_table! {
    /// Functions of Python's stable ABI.
    struct PythonApi {
        required {
            Py_IsInitialized: unsafe extern "C" fn() -> c_int,
            PyGILState_Ensure: unsafe extern "C" fn() -> c_int,
            PyGILState_Release: unsafe extern "C" fn(c_int),
            PyImport_ImportModule: unsafe extern "C" fn(*const c_char) -> *mut c_void,
            PyErr_Clear: unsafe extern "C" fn(),
            Py_DecRef: unsafe extern "C" fn(*mut c_void)
        }
        optional {}
    }
}

/// Imports the package's hooks into the Python that runs this process. Never fails: without Python nothing happens, without
/// the package Keras needs `jit_compile=False`, which is said at debug level.
pub(crate) fn install_hooks() {
    // TensorFlow in C++ or another language: no Keras.
    let Ok(python) = PythonApi::get() else { return };
    // SAFETY: Py_IsInitialized may be called at any time. PyGILState_Ensure needs an initialized interpreter, works whether
    // or not this thread holds the lock, and is paired with PyGILState_Release. PyImport_ImportModule takes a
    // NUL-terminated name under the lock and returns a new reference, or null with an exception set.
    let imported = unsafe {
        if (python.Py_IsInitialized)() == 0 {
            return;
        }
        let state = (python.PyGILState_Ensure)();
        let module = (python.PyImport_ImportModule)(MODULE.as_ptr());
        if module.is_null() {
            (python.PyErr_Clear)();
        } else {
            (python.Py_DecRef)(module);
        }
        (python.PyGILState_Release)(state);
        !module.is_null()
    };
    if !imported {
        log::debug!(
            "the Python package tensorflow_wgpu cannot be imported; Keras models need compile(jit_compile=False)"
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
