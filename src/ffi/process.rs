//! Hooks of the C library into the life of the process: its children by fork, and its end.

use std::sync::Once;

use crate::device::process;

/// Watches for forks from now on.
pub(crate) fn watch_forks() {
    #[cfg(unix)]
    {
        extern "C" fn in_child() {
            // One store to an atomic: all that may be done here.
            process::forked();
        }
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: the handler lives as long as this library, which is never unloaded. Without
            // memory for it, children are on their own.
            let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
    }
}

/// Ends a forked child that would otherwise wait for ever for a thread of its parent's, with a line
/// that says why.
pub(crate) fn end_child() -> ! {
    let why = process::check().err().map(|e| e.to_string()).unwrap_or_default();
    let line = format!("tensorflow-wgpu: error: a copy to a WGPU device: {why}\n");
    #[cfg(unix)]
    // SAFETY: the line is as long as it says. Neither Rust's nor C's streams are used, whose locks
    // other threads may have held at the fork; handlers and destructors would wait for such threads
    // as well.
    unsafe {
        libc::write(2, line.as_ptr().cast(), line.len());
        libc::_exit(1)
    }
    #[cfg(not(unix))]
    panic!("{line}")
}

/// The user whom this process acts for.
#[cfg(unix)]
pub(crate) fn user() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Ends the use of drivers after Python's last step, when no handler of the C library has run yet.
pub(crate) extern "C" fn at_python_exit() {
    // Who does not leave in time meets the C library's handler below.
    let _ = crate::ffi::guard::caught("the end of Python", || Ok(process::end()));
}

/// Has the use of drivers ended when the process exits, before what has registered itself until
/// now. Called again once drivers have made more to destroy: handlers run in the reverse order of
/// their registration, and later ones find the work done. A driver that is at its first program may
/// still register its own later; only an end by [`at_python_exit`] is before all of them.
pub(crate) fn watch_exit() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use std::ffi::{c_int, c_void};

        unsafe extern "C" {
            safe fn on_exit(
                function: extern "C" fn(c_int, *mut c_void),
                argument: *mut c_void,
            ) -> c_int;
            safe fn fflush(stream: *mut c_void) -> c_int;
        }
        extern "C" fn at_exit(status: c_int, _: *mut c_void) {
            if crate::ffi::guard::caught("the end of the process", || Ok(process::end()))
                .unwrap_or(true)
            {
                return;
            }
            // A thread is still inside a driver, whose destructors must not run beneath it.
            log::debug!("the process ends without its destructors, for a driver is still at work");
            fflush(std::ptr::null_mut());
            // SAFETY: it ends the process; what C buffers is written, and Python has ended before.
            unsafe { libc::_exit(status) }
        }
        on_exit(at_exit, std::ptr::null_mut());
    }
    #[cfg(all(unix, not(all(target_os = "linux", target_env = "gnu"))))]
    {
        extern "C" fn at_exit() {
            let _ = crate::ffi::guard::caught("the end of the process", || Ok(process::end()));
        }
        // SAFETY: the handler lives as long as this library, which is never unloaded.
        unsafe { libc::atexit(at_exit) };
    }
}
