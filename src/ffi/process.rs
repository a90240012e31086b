//! The part of TensorFlow and Python in the life of the process.

use crate::device::process;
use crate::sys;

/// Ends a forked child that would otherwise wait forever for a thread of its parent, with a line
/// that says why.
pub(crate) fn end_child() -> ! {
    let why = process::check().err().map(|e| e.to_string()).unwrap_or_default();
    sys::process::end_at_once(&format!("tensorflow-wgpu: error: a copy to a WGPU device: {why}\n"))
}

/// Ends the use of drivers after Python's last step. No handler of the C library has run by then.
pub(crate) extern "C" fn at_python_exit() {
    // A thread that does not leave in time meets the handler of [`process::watch_exit`].
    let _ = sys::guard::caught("the end of Python", || Ok(process::end()));
}
