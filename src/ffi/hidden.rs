//! Threads to which no device is shown for a while.
//!
//! Some of TensorFlow's converters make their own session in C++, and read the memory of its
//! variables as host memory. TensorFlow asks for the number of devices in the thread that makes the
//! session. So the Python package hides the devices from that thread while a converter runs.

use std::cell::Cell;
use std::ffi::c_int;

use crate::ffi::guard::guard_or;

thread_local! {
    /// The number of callers that hide the devices from this thread.
    static HIDERS: Cell<u32> = const { Cell::new(0) };
}

/// Hides the devices from the calling thread, or ends that if `hide` is 0. Calls are counted, so
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
