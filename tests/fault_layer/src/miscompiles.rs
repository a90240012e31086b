//! A driver that computes wrong numbers: additions of floats become subtractions.
//!
//! The variable [`WHICH`] chooses the shaders: those with push constants, or all.

use std::sync::OnceLock;

use crate::refusals::has_push_constants;
use crate::spirv::{self, HEADER, op};

/// The variable: `usual` or `all`.
const WHICH: &str = "FAULT_LAYER_MISCOMPILE";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    None,
    Usual,
    All,
}

fn which() -> Which {
    static OF_PROCESS: OnceLock<Which> = OnceLock::new();
    *OF_PROCESS.get_or_init(|| match std::env::var(WHICH).as_deref() {
        Ok("usual") => Which::Usual,
        Ok("all") => Which::All,
        _ => Which::None,
    })
}

/// The driver's translation of a module's code, if it differs.
pub fn miscompiled(code: &[u8]) -> Option<Vec<u8>> {
    match which() {
        Which::None => return None,
        Which::Usual if !has_push_constants(code) => return None,
        Which::Usual | Which::All => {}
    }
    let mut words = spirv::words(code);
    let mut at = HEADER;
    while let Some(first) = words.get_mut(at) {
        let length = (*first >> 16).max(1);
        if *first & 0xffff == op::FADD {
            *first = length << 16 | op::FSUB;
        }
        at += length as usize;
    }
    Some(spirv::bytes(&words))
}
