//! Shaders that the driver refuses: each pipeline of such a shader fails, whenever it is made.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::vulkan::VkResult;

/// `VK_PIPELINE_CREATE_DISABLE_OPTIMIZATION_BIT`.
const UNOPTIMIZED: u32 = 1;

/// Bytes of a module whose entry point returns at once.
const IDLE: usize = 256;

struct State {
    /// How many of the shaders that come next and are new are refused.
    next: u64,
    result: VkResult,
    /// Whether their pipelines exist without optimizations.
    only_optimized: bool,
    /// The hashes of all shaders' code, and of the refused ones.
    seen: BTreeSet<u64>,
    refused: BTreeSet<u64>,
}

static STATE: Mutex<State> = Mutex::new(State {
    next: 0,
    result: 0,
    only_optimized: false,
    seen: BTreeSet::new(),
    refused: BTreeSet::new(),
});

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the next `count` new shaders refused by `result`. Earlier ones stay refused.
pub fn refuse(count: u64, result: VkResult, only_optimized: bool) {
    let mut state = state();
    (state.next, state.result, state.only_optimized) = (count, result, only_optimized);
}

/// Takes a shader module with `bytes` bytes of code. No driver refuses one that computes nothing.
pub fn created(hash: u64, bytes: usize) {
    let mut state = state();
    if state.seen.insert(hash) && state.next > 0 && bytes > IDLE {
        state.next -= 1;
        state.refused.insert(hash);
    }
}

/// The answer to a pipeline of this code with these flags, if it is refused.
pub fn answer(hash: u64, flags: u32) -> Option<VkResult> {
    let state = state();
    let exists = state.only_optimized && flags & UNOPTIMIZED != 0;
    (state.refused.contains(&hash) && !exists).then_some(state.result)
}
