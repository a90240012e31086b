//! Whether something that a driver offers has given right results. Nobody knows before it was
//! tried, and one wrong result is enough.

use std::sync::atomic::{AtomicU8, Ordering};

/// A verdict that may be missing yet.
#[derive(Debug, Default)]
pub struct Validation(AtomicU8);

const VALID: u8 = 1;
const INVALID: u8 = 2;

impl Validation {
    /// One without a verdict.
    pub const fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    /// The verdict, if there is one.
    pub fn verdict(&self) -> Option<bool> {
        match self.0.load(Ordering::Acquire) {
            VALID => Some(true),
            INVALID => Some(false),
            _ => None,
        }
    }

    /// It has given right results; says nothing against an earlier wrong one.
    pub fn confirm(&self) {
        let _ = self.0.compare_exchange(0, VALID, Ordering::AcqRel, Ordering::Acquire);
    }

    /// It is not to be used any more. Whether this is news.
    pub fn refuse(&self) -> bool {
        self.0.swap(INVALID, Ordering::AcqRel) != INVALID
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_final() {
        let trust = Validation::new();
        assert_eq!(trust.verdict(), None);
        trust.confirm();
        assert_eq!(trust.verdict(), Some(true));
        assert!(trust.refuse());
        assert!(!trust.refuse());
        trust.confirm();
        assert_eq!(trust.verdict(), Some(false));
    }
}
