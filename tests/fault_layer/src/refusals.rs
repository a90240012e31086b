//! Shaders that the driver refuses: each pipeline of a refused shader fails, whenever it is made.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::spirv::{self, op};
use crate::vulkan::VkResult;

/// `VK_PIPELINE_CREATE_DISABLE_OPTIMIZATION_BIT`.
const UNOPTIMIZED: u32 = 1;

/// Bytes of a module whose entry point returns at once.
const IDLE: usize = 256;

/// The pipelines of a shader that are refused.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// All its pipelines.
    All,
    /// Its pipelines with optimizations.
    Optimized,
    /// All pipelines if it has push constants; other shaders do not count.
    WithPushConstants,
}

impl What {
    /// The value for a number of `fault_layer_refuse`.
    pub fn of(number: i32) -> Self {
        match number {
            0 => Self::All,
            1 => Self::Optimized,
            _ => Self::WithPushConstants,
        }
    }
}

struct State {
    /// The refused ones among the shaders that are new since [`refuse`]: the first one, and their
    /// number.
    first: u64,
    count: u64,
    result: VkResult,
    what: What,
    /// The hashes of the code of all shaders that count, and of the refused ones.
    seen: BTreeSet<u64>,
    refused: BTreeSet<u64>,
}

static STATE: Mutex<State> = Mutex::new(State {
    first: 0,
    count: 0,
    result: 0,
    what: What::All,
    seen: BTreeSet::new(),
    refused: BTreeSet::new(),
});

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the driver refuse `count` shaders with `result`, starting with the new shader of number
/// `first`, counted from 1. All shaders are new again.
pub fn refuse(first: u64, count: u64, result: VkResult, what: What) {
    let (seen, refused) = (BTreeSet::new(), BTreeSet::new());
    *state() = State { first, count, result, what, seen, refused };
}

/// Notes a shader module with this code. No driver refuses one that computes nothing.
pub fn created(hash: u64, code: &[u8]) {
    let mut state = state();
    let counts = state.what != What::WithPushConstants || has_push_constants(code);
    if code.len() > IDLE && counts && state.seen.insert(hash) {
        let number = state.seen.len() as u64;
        if number >= state.first && number - state.first < state.count {
            state.refused.insert(hash);
        }
    }
}

/// The answer to a pipeline with this code and these flags, if it is refused.
pub fn answer(hash: u64, flags: u32) -> Option<VkResult> {
    let state = state();
    let exists = state.what == What::Optimized && flags & UNOPTIMIZED != 0;
    (state.refused.contains(&hash) && !exists).then_some(state.result)
}

/// The number of shaders since [`refuse`], and the number of refused ones.
pub fn counts() -> (u64, u64) {
    let state = state();
    (state.seen.len() as u64, state.refused.len() as u64)
}

/// Whether a module of SPIR-V has a variable of the storage class `PushConstant`.
pub fn has_push_constants(code: &[u8]) -> bool {
    const PUSH_CONSTANT: u32 = 9;
    spirv::instructions(&spirv::words(code)).iter().any(|instruction| {
        instruction[0] & 0xffff == op::VARIABLE && instruction.get(3) == Some(&PUSH_CONSTANT)
    })
}
