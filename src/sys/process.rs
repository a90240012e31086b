//! Hooks of the C library into the life of the process: its children by fork, and its end.

#[cfg(unix)]
use std::sync::OnceLock;

/// Has every child of fork call `hook` before anything else of it runs. One store to an atomic is
/// all that may be done there. Only the first hook counts.
pub(crate) fn watch_forks(hook: fn()) {
    #[cfg(unix)]
    {
        static HOOK: OnceLock<fn()> = OnceLock::new();
        extern "C" fn in_child() {
            if let Some(hook) = HOOK.get() {
                hook();
            }
        }
        HOOK.get_or_init(|| {
            // SAFETY: the handler lives as long as this library, which is never unloaded. Without
            // memory for it, children are on their own.
            let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            hook
        });
    }
    #[cfg(not(unix))]
    let _ = hook;
}

/// Ends the process at once, with a line to stderr: no handler and no destructor runs, and no lock
/// is taken. For a forked child, where other threads of the parent may have held any lock.
pub(crate) fn end_at_once(line: &str) -> ! {
    #[cfg(unix)]
    // SAFETY: the line is as long as it says. Neither Rust's nor C's streams are used.
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

/// Has `end` called when the process exits, before the handlers that have been registered until
/// now. Handlers run in the reverse order of their registration, so this is called again once
/// drivers have made more to destroy; only the first `end` counts. It returns whether all threads
/// have left the drivers; where it does not, the process ends without its destructors, which must
/// not run beneath a driver.
///
/// Nothing on Windows: a DLL's handlers run there when all other threads have been ended, with
/// whatever locks these held. Python's end is watched on all systems.
pub(crate) fn watch_exit(end: fn() -> bool) {
    #[cfg(unix)]
    {
        static END: OnceLock<fn() -> bool> = OnceLock::new();
        fn has_ended() -> bool {
            let end = || Ok(END.get().is_none_or(|end| end()));
            super::guard::caught("the end of the process", end).unwrap_or(true)
        }
        END.get_or_init(|| end);
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
                if has_ended() {
                    return;
                }
                log::debug!("the process ends without its destructors: a driver is still at work");
                fflush(std::ptr::null_mut());
                // SAFETY: it ends the process; what C buffers is written, and Python has ended.
                unsafe { libc::_exit(status) }
            }
            on_exit(at_exit, std::ptr::null_mut());
        }
        #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
        {
            extern "C" fn at_exit() {
                has_ended();
            }
            // SAFETY: the handler lives as long as this library, which is never unloaded.
            unsafe { libc::atexit(at_exit) };
        }
    }
    #[cfg(not(unix))]
    let _ = end;
}
