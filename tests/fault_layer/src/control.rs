//! The control of the layer from inside the process, by C functions of the library.

use std::ffi::{CStr, c_char};

use crate::functions::{COUNT, FUNCTIONS};
use crate::refusals::What;
use crate::vulkan::VkResult;
use crate::{caches, faults, refusals, slow};

/// The place of a function in the table; `COUNT` if it has none.
unsafe fn place(name: *const c_char) -> usize {
    // SAFETY: the caller passes a string.
    let name = unsafe { CStr::from_ptr(name) };
    FUNCTIONS.iter().position(|row| row.name == name).unwrap_or(COUNT)
}

/// Counts from 0 and has the calls `first` to `last` (from 1) of function `name` return `result`.
/// With `first` 0 none fails. A `VK_ERROR_DEVICE_LOST` without end makes every function that can
/// return it do so. Returns 0, or -1 for an unknown function.
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

/// How often function `name` was called since the last `fault_layer_arm`; -1 for an unknown one.
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

/// The name of the function at a place of the table; null behind its end.
#[unsafe(no_mangle)]
pub extern "C" fn fault_layer_name(place: usize) -> *const c_char {
    FUNCTIONS.get(place).map_or(std::ptr::null(), |row| row.name.as_ptr())
}

/// How many calls failed since the last `fault_layer_arm`.
#[unsafe(no_mangle)]
pub extern "C" fn fault_layer_injected() -> u64 {
    faults::injected()
}

/// Has pipeline caches hold what was compiled, from now on.
#[unsafe(no_mangle)]
pub extern "C" fn fault_layer_keep_pipelines() {
    caches::keep_pipelines();
}

/// How many pipelines were compiled that the data of their cache held already.
#[unsafe(no_mangle)]
pub extern "C" fn fault_layer_found_pipelines() -> u64 {
    caches::found()
}

/// Has the pipelines of `count` shaders fail with `result`, from the new shader of number `first`
/// on: all of them if `what` is 0, those with optimizations if it is 1, and if it is 2 all of those
/// shaders that have push constants.
#[unsafe(no_mangle)]
pub extern "C" fn fault_layer_refuse(first: u64, count: u64, result: VkResult, what: i32) {
    refusals::refuse(first, count, result, What::of(what));
}

/// How many new shaders there were since [`fault_layer_refuse`].
#[unsafe(no_mangle)]
pub extern "C" fn fault_layer_shaders() -> u64 {
    refusals::counts().0
}

/// How many of them are refused.
#[unsafe(no_mangle)]
pub extern "C" fn fault_layer_refused() -> u64 {
    refusals::counts().1
}

/// Plays a GPU that is `factor` times slower than the driver, with a watchdog of 2 s.
#[unsafe(no_mangle)]
pub extern "C" fn fault_layer_slow(factor: u32) {
    slow::slow(factor);
}

/// Milliseconds that the slow GPU was busy.
#[unsafe(no_mangle)]
pub extern "C" fn fault_layer_total() -> u64 {
    slow::total()
}

/// Milliseconds that its longest submission took.
#[unsafe(no_mangle)]
pub extern "C" fn fault_layer_longest() -> u64 {
    slow::longest()
}
