//! The system's id and name of a thread.

/// The calling thread: its pthread_t, by which TensorFlow's profiler tells threads apart, or on
/// Windows its id.
pub(crate) fn id() -> u64 {
    #[cfg(unix)]
    // SAFETY: it has no precondition.
    let id = unsafe { libc::pthread_self() as u64 };
    #[cfg(windows)]
    // SAFETY: it has no precondition.
    let id = unsafe { u64::from(windows_sys::Win32::System::Threading::GetCurrentThreadId()) };
    #[cfg(not(any(unix, windows)))]
    let id = 0;
    id
}

/// The calling thread's name, for a thread that Rust did not start. Empty if the system has none.
#[cfg(target_os = "linux")]
pub(crate) fn name() -> String {
    let mut name = [0_u8; 16];
    // SAFETY: Linux's names have at most 16 bytes with their NUL, which are written there.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}

/// See above.
#[cfg(not(target_os = "linux"))]
pub(crate) const fn name() -> String {
    String::new()
}

#[cfg(test)]
mod tests {
    #[test]
    fn threads_differ() {
        let other = std::thread::spawn(super::id).join().unwrap();
        assert_ne!(super::id(), other);
    }
}
