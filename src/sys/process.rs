//! Hooks of the C library into the life cycle of the process: its children by fork, and its exit.

#[cfg(unix)]
use std::sync::OnceLock;

/// Makes every child of fork call `hook` before it runs anything else. The hook may only store to
/// an atomic. Only the first hook counts.
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
            // memory for it, children run without the hook.
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

/// The system's information about another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "other systems are not asked"))]
pub(crate) enum Started {
    /// It runs, and started at this time of the system's own clock.
    At(u64),
    /// There is no such process.
    Never,
    /// The system does not say.
    Unknown,
}

/// The start time of the process with this number.
#[cfg(target_os = "linux")]
pub(crate) fn started(process: u32) -> Started {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else {
        let is_mounted = std::path::Path::new("/proc/self/stat").exists();
        return if is_mounted { Started::Never } else { Started::Unknown };
    };
    // The name in parentheses may hold any character. The state follows it, and the start time 19
    // fields later.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    fields
        .split_whitespace()
        .nth(19)
        .and_then(|n| n.parse().ok())
        .map_or(Started::Unknown, Started::At)
}

/// See above.
#[cfg(not(target_os = "linux"))]
pub(crate) const fn started(_: u32) -> Started {
    Started::Unknown
}

/// Identifies the system on which process numbers mean the same as here: this boot of this system,
/// and its namespace.
pub(crate) fn place() -> String {
    #[cfg(target_os = "linux")]
    let place = {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        format!("{} {}", boot.trim(), namespace.display())
    };
    #[cfg(not(target_os = "linux"))]
    let place = String::new();
    place
}

/// Sets variables of this process's environment, which its children inherit.
///
/// No thread may read a variable meanwhile through a C function, and that cannot be guaranteed for
/// threads of other libraries. So this is for a process that would otherwise certainly crash.
#[cfg(has_examination)]
pub(crate) fn set_variables(variables: &[(String, String)]) {
    for (name, value) in variables {
        // SAFETY: not proven, as the comment says: it is the smaller of two dangers.
        unsafe { std::env::set_var(name, value) };
    }
}

/// Takes the lock of a file for this process alone, unless another process has it. Closing the
/// file's last handle releases the lock.
#[cfg(unix)]
pub(crate) fn try_lock(file: &std::fs::File) -> std::io::Result<bool> {
    use std::os::fd::AsRawFd;

    // SAFETY: the descriptor is open for the call.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
        return Ok(true);
    }
    match std::io::Error::last_os_error() {
        e if e.kind() == std::io::ErrorKind::WouldBlock => Ok(false),
        e => Err(e),
    }
}

/// Whether the process has rights that its user lacks, by a set-user-ID bit, capabilities of its
/// file or the like. Its environment is then controlled by a user who has fewer rights.
#[cfg(target_os = "linux")]
pub(crate) fn has_raised_rights() -> bool {
    // SAFETY: it takes a number and reads what the kernel gave this process.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// The user for whom this process acts.
#[cfg(unix)]
pub(crate) fn user() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Makes the process call `end` when it exits, before the handlers that have been registered until
/// now. Handlers run in the reverse order of their registration, so this is called again once
/// drivers have created more objects to destroy; only the first `end` counts. It returns whether
/// all threads have left the drivers. If they have not, the process ends without its destructors,
/// which must not run beneath a driver.
///
/// Does nothing on Windows: a DLL's handlers run there after all other threads were ended, which
/// may have held any locks. Python's exit is watched on all systems.
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
                // SAFETY: it ends the process; C's buffers are written, and Python has ended.
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_has_not_started() {
        assert!(matches!(started(std::process::id()), Started::At(at) if at > 0));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let (own, other) = (started(std::process::id()), started(child.id()));
        assert!(matches!((own, other), (Started::At(a), Started::At(b)) if a <= b), "{other:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(started(child.id()), Started::Never);
        assert!(!place().is_empty());
    }
}
