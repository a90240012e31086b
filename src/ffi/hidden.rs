//! Threads that get no device for a while.
//!
//! Converters of TensorFlow make a session of their own in C++ and read the memory of its variables
//! as the host's. TensorFlow asks for the count of devices in the thread that makes the session, so
//! the Python package hides the devices from that thread while a converter runs.

use std::cell::Cell;
use std::ffi::c_int;

use crate::ffi::guard::guard_or;

thread_local! {
    /// How many callers hide the devices from this thread.
    static HIDERS: Cell<u32> = const { Cell::new(0) };
}

/// Hides the devices from the calling thread, or ends that where `hide` is 0. Calls are counted, so
/// that they nest.
#[unsafe(no_mangle)]
extern "C" fn tensorflow_wgpu_hide_devices(hide: c_int) {
    guard_or((), "tensorflow_wgpu_hide_devices", || {
        HIDERS.with(|hiders| {
            let now = hiders.get();
            hiders.set(if hide == 0 { now.saturating_sub(1) } else { now.saturating_add(1) });
        });
        Ok(())
    });
}

/// Whether the devices are hidden from the calling thread.
pub(crate) fn from_this_thread() -> bool {
    HIDERS.with(|hiders| hiders.get() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_nest_and_other_threads_see_the_devices() {
        assert!(!from_this_thread());
        tensorflow_wgpu_hide_devices(1);
        tensorflow_wgpu_hide_devices(1);
        tensorflow_wgpu_hide_devices(0);
        assert!(from_this_thread());
        assert!(!std::thread::spawn(from_this_thread).join().expect("the thread panicked"));
        tensorflow_wgpu_hide_devices(0);
        assert!(!from_this_thread());
        tensorflow_wgpu_hide_devices(0);
        tensorflow_wgpu_hide_devices(1);
        assert!(from_this_thread());
        tensorflow_wgpu_hide_devices(0);
    }
}
