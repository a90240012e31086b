//! The control of the layer from within the process, by C functions of the library.

use std::ffi::{CStr, c_char};

use crate::functions::{COUNT, FUNCTIONS};
use crate::refusals::What;
use crate::vulkan::VkResult;
use crate::{caches, faults, refusals, slow};

/// The index of a function in the table; `COUNT` if it is not there.
unsafe fn place(name: *const c_char) -> usize {
    // SAFETY: the caller passes a string.
    let name = unsafe { CStr::from_ptr(name) };
    FUNCTIONS.iter().position(|row| row.name == name).unwrap_or(COUNT)
}

/// Counts from 0 and makes the calls `first` to `last` (from 1) of function `name` return `result`.
/// With `first` 0 no call fails. A `VK_ERROR_DEVICE_LOST` without an end makes every function that
/// can return it do so. Returns 0, or -1 for an unknown function.
///
/// # Safety
/// `name` must be a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fault_layer_arm(
    name: *const c_char,
    first: u64,
    last: u64,
    result: VkResult,
) -> i32 {
    // SAFETY: the caller's contract.
    let target = unsafe { place(name) };
    if target == COUNT {
        return -1;
    }
    faults::arm(if first == 0 { COUNT } else { target }, first, last, result);
    0
}

/// Lets all calls through again.
#[unsafe(no_mangle)]
pub extern "C" fn fault_layer_disarm() {
    faults::disarm();
}

/// The number of calls of function `name` since the last `fault_layer_arm`; -1 for an unknown one.
///
/// # Safety
/// `name` must be a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fault_layer_calls(name: *const c_char) -> i64 {
    // SAFETY: the caller's contract.
    match unsafe { place(name) } {
        COUNT => -1,
        function => faults::calls(function) as i64,
    }
}

/// The name of the function at an index of the table; null behind its end.
#[unsafe(no_mangle)]
pub extern "C" fn fault_layer_name(place: usize) -> *const c_char {
    FUNCTIONS.get(place).map_or(std::ptr::null(), |row| row.name.as_ptr())
}

/// The number of calls that failed since the last `fault_layer_arm`.
#[unsafe(no_mangle)]
pub extern "C" fn fault_layer_injected() -> u64 {
    faults::injected()
}

/// Makes pipeline caches keep the compiled pipelines from now on.
#[unsafe(no_mangle)]
pub extern "C" fn fault_layer_keep_pipelines() {
    caches::keep_pipelines();
}

/// The number of compiled pipelines that the data of their cache held already.
#[unsafe(no_mangle)]
pub extern "C" fn fault_layer_found_pipelines() -> u64 {
    caches::found()
}

/// Makes the pipelines of `count` shaders fail with `result`, starting with the new shader of
/// number `first`. If `what` is 0, all their pipelines fail; if it is 1, those with optimizations;
/// if it is 2, all pipelines of shaders that have push constants.
#[unsafe(no_mangle)]
pub extern "C" fn fault_layer_refuse(first: u64, count: u64, result: VkResult, what: i32) {
    refusals::refuse(first, count, result, What::of(what));
}

/// The number of new shaders since [`fault_layer_refuse`].
#[unsafe(no_mangle)]
pub extern "C" fn fault_layer_shaders() -> u64 {
    refusals::counts().0
}

/// The number of these shaders that are refused.
#[unsafe(no_mangle)]
pub extern "C" fn fault_layer_refused() -> u64 {
    refusals::counts().1
}

/// Simulates a GPU that is `factor` times slower than the driver, with a watchdog of 2 s.
#[unsafe(no_mangle)]
pub extern "C" fn fault_layer_slow(factor: u32) {
    slow::slow(factor);
}

/// The milliseconds for which the slow GPU was busy.
#[unsafe(no_mangle)]
pub extern "C" fn fault_layer_total() -> u64 {
    slow::total()
}

/// The milliseconds of its longest submission.
#[unsafe(no_mangle)]
pub extern "C" fn fault_layer_longest() -> u64 {
    slow::longest()
}
