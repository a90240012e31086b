//! Timeline semaphores under a shim that executes nothing. It lets every wait succeed, but some
//! leave the counters as they are, and wgpu reads these after a wait. With `listings`, a counter is
//! at least what a wait for it has ended with.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::chain;
use crate::functions::Id;
use crate::listings;
use crate::vulkan::{Function, Object, VK_SUCCESS, VkResult};

/// `VkSemaphoreWaitInfo`.
#[repr(C)]
struct WaitInfo {
    s_type: i32,
    next: *const c_void,
    flags: u32,
    count: u32,
    semaphores: *const u64,
    values: *const u64,
}

type Create = unsafe extern "system" fn(Object, *const c_void, *const c_void, *mut u64) -> VkResult;
type Wait = unsafe extern "system" fn(Object, *const WaitInfo, u64) -> VkResult;
type GetValue = unsafe extern "system" fn(Object, u64, *mut u64) -> VkResult;

/// The values of semaphores with which waits have ended.
static WAITED: Mutex<BTreeMap<u64, u64>> = Mutex::new(BTreeMap::new());

fn waited() -> MutexGuard<'static, BTreeMap<u64, u64>> {
    WAITED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The wrapper of a function, if it has one here.
pub fn wrapper(name: &CStr) -> Option<Function> {
    // SAFETY: a function of any type may be kept as another one until it is called.
    unsafe {
        match name.to_bytes() {
            _ if !listings::are_on() => None,
            b"vkCreateSemaphore" => Some(std::mem::transmute::<Create, Function>(create)),
            b"vkWaitSemaphores" | b"vkWaitSemaphoresKHR" => {
                Some(std::mem::transmute::<Wait, Function>(wait))
            }
            b"vkGetSemaphoreCounterValue" | b"vkGetSemaphoreCounterValueKHR" => {
                Some(std::mem::transmute::<GetValue, Function>(value))
            }
            _ => None,
        }
    }
}

/// The value of a semaphore that was destroyed does not count for a new one with its handle.
unsafe extern "system" fn create(
    device: Object,
    info: *const c_void,
    allocator: *const c_void,
    made: *mut u64,
) -> VkResult {
    // SAFETY: Vulkan's contract.
    unsafe {
        let next = chain::next(device, Id::vkCreateSemaphore);
        let result = std::mem::transmute::<Function, Create>(next)(device, info, allocator, made);
        if result == VK_SUCCESS {
            waited().remove(&*made);
        }
        result
    }
}

unsafe extern "system" fn wait(device: Object, info: *const WaitInfo, timeout: u64) -> VkResult {
    // SAFETY: Vulkan's contract.
    unsafe {
        let next = chain::next(device, Id::vkWaitSemaphores);
        let result = std::mem::transmute::<Function, Wait>(next)(device, info, timeout);
        if result == VK_SUCCESS {
            let WaitInfo { count, semaphores, values, .. } = *info;
            let mut waited = waited();
            for i in 0..count as usize {
                let value = waited.entry(*semaphores.add(i)).or_default();
                *value = (*value).max(*values.add(i));
            }
        }
        result
    }
}

unsafe extern "system" fn value(device: Object, semaphore: u64, value: *mut u64) -> VkResult {
    // SAFETY: Vulkan's contract.
    unsafe {
        let next = chain::next(device, Id::vkGetSemaphoreCounterValue);
        let result = std::mem::transmute::<Function, GetValue>(next)(device, semaphore, value);
        if let Some(least) = waited().get(&semaphore) {
            *value = (*value).max(*least);
        }
        result
    }
}
