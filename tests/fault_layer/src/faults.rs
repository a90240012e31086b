//! Decides which call fails. One fault is armed at a time; calls are counted from then on. A
//! variable chooses a crash, for processes that cannot be controlled from within.

use std::ffi::{CStr, OsString};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};

use crate::functions::{COUNT, FUNCTIONS, Id};
use crate::indices;
use crate::vulkan::{VK_ERROR_DEVICE_LOST, VkResult};

static CALLS: [AtomicU64; COUNT] = [const { AtomicU64::new(0) }; COUNT];
static INJECTED: AtomicU64 = AtomicU64::new(0);

/// The index in [`FUNCTIONS`] of the function that fails, or `COUNT`.
static TARGET: AtomicUsize = AtomicUsize::new(COUNT);
/// The first call that fails, from 1.
static FIRST: AtomicU64 = AtomicU64::new(0);
/// The last call that fails.
static LAST: AtomicU64 = AtomicU64::new(0);
static RESULT: AtomicI32 = AtomicI32::new(0);
/// Whether the device was lost for good: every function that can report this does.
static LOST: AtomicBool = AtomicBool::new(false);

/// Forgets all counts and makes calls `first` to `last` of a function return `result`.
pub fn arm(target: usize, first: u64, last: u64, result: VkResult) {
    disarm();
    CALLS.iter().for_each(|calls| calls.store(0, Ordering::SeqCst));
    INJECTED.store(0, Ordering::SeqCst);
    FIRST.store(first, Ordering::SeqCst);
    LAST.store(last, Ordering::SeqCst);
    RESULT.store(result, Ordering::SeqCst);
    TARGET.store(target, Ordering::SeqCst);
}

/// Loses the device for good.
pub fn lose() {
    LOST.store(true, Ordering::SeqCst);
}

/// Lets all calls through. Counts stay.
pub fn disarm() {
    TARGET.store(COUNT, Ordering::SeqCst);
    LOST.store(false, Ordering::SeqCst);
}

/// The number of calls of a function since the last [`arm`].
pub fn calls(function: usize) -> u64 {
    CALLS[function].load(Ordering::SeqCst)
}

/// The number of calls that failed since the last [`arm`].
pub fn injected() -> u64 {
    INJECTED.load(Ordering::SeqCst)
}

/// The variable with the name of a function that ends the process when it is called: any function
/// of instances and devices, also one that has no row in [`FUNCTIONS`].
const CRASH: &str = "FAULT_LAYER_CRASH";
/// The variable that says how it ends: with this exit status. Without it, by a signal.
const STATUS: &str = "FAULT_LAYER_EXIT";

/// Whether [`CRASH`] names this function.
pub fn crashes(name: &CStr) -> bool {
    static CRASHING: OnceLock<Option<OsString>> = OnceLock::new();
    let crashing = CRASHING.get_or_init(|| std::env::var_os(CRASH));
    crashing.as_ref().is_some_and(|crashing| crashing.as_encoded_bytes() == name.to_bytes())
}

/// The function in the place of one that ends the process.
pub unsafe extern "system" fn crash() {
    match std::env::var(STATUS).map(|status| status.parse()) {
        Ok(Ok(status)) => std::process::exit(status),
        _ => std::process::abort(),
    }
}

/// Counts a call and returns the result with which it fails, if it does.
pub fn strike(id: Id) -> Option<VkResult> {
    indices::stop_if_broken();
    let call = CALLS[id as usize].fetch_add(1, Ordering::SeqCst) + 1;
    let chosen = TARGET.load(Ordering::SeqCst) == id as usize
        && (FIRST.load(Ordering::SeqCst)..=LAST.load(Ordering::SeqCst)).contains(&call);
    let result = RESULT.load(Ordering::SeqCst);
    if chosen && result == VK_ERROR_DEVICE_LOST && LAST.load(Ordering::SeqCst) == u64::MAX {
        LOST.store(true, Ordering::SeqCst);
    }
    let lost = LOST.load(Ordering::SeqCst)
        && FUNCTIONS[id as usize].results.contains(&VK_ERROR_DEVICE_LOST);
    let failure = if chosen { Some(result) } else { lost.then_some(VK_ERROR_DEVICE_LOST) };
    if failure.is_some() {
        INJECTED.fetch_add(1, Ordering::SeqCst);
    }
    failure
}
