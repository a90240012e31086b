//! Device memory with wrong contents, because the work that should have written it failed after its
//! call had returned.
//!
//! A read of it returns the error, and the output of that read is poisoned in turn. Memory is sound
//! again once it is allocated anew or written as a whole.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::{Error, Result};

/// Poisoned addresses: disjoint ranges by their starts, with the error that spoiled them.
#[derive(Debug, Default)]
pub(crate) struct Poison {
    ranges: BTreeMap<u64, (u64, Error)>,
}

impl Poison {
    /// Whether all memory is sound.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Poisons `range`.
    pub fn add(&mut self, range: Range<u64>, error: &Error) {
        if !range.is_empty() {
            self.clear(range.clone());
            self.ranges.insert(range.start, (range.end, error.clone()));
        }
    }

    /// Makes `range` sound.
    pub fn clear(&mut self, range: Range<u64>) {
        while let Some((start, (end, error))) =
            self.overlapping(&range).map(|(s, found)| (s, found.clone()))
        {
            self.ranges.remove(&start);
            if start < range.start {
                self.ranges.insert(start, (range.start, error.clone()));
            }
            if end > range.end {
                self.ranges.insert(range.end, (end, error));
            }
        }
    }

    /// Fails with the error that spoiled a part of `range`, if there is one.
    pub fn check(&self, range: &Range<u64>) -> Result<()> {
        let explain = |reason| {
            format!(
                "a tensor's value is missing, because the work that should have written it \
                 failed: {reason}"
            )
        };
        self.overlapping(range).map_or(Ok(()), |(_, (_, e))| {
            let is_explained = e.to_string().contains("a tensor's value is missing");
            Err(if is_explained { e.clone() } else { e.clone().map_message(explain) })
        })
    }

    /// The last poisoned range that shares an address with `range`.
    fn overlapping(&self, range: &Range<u64>) -> Option<(u64, &(u64, Error))> {
        let (start, found) = self.ranges.range(..range.end).next_back()?;
        (found.0 > range.start && !range.is_empty()).then_some((*start, found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poisoned(poison: &Poison) -> Vec<u64> {
        (0..40).filter(|at| poison.check(&(*at..at + 1)).is_err()).collect()
    }

    #[test]
    fn ranges_are_added_and_cleared_byte_by_byte() {
        let error = Error::Internal("broken".into());
        let mut poison = Poison::default();
        poison.add(10..20, &error);
        poison.add(25..30, &error);
        assert_eq!(poisoned(&poison), (10..20).chain(25..30).collect::<Vec<_>>());
        assert!(
            poison.check(&(0..10)).is_ok()
                && poison.check(&(20..25)).is_ok()
                && poison.check(&(0..40)).is_err()
        );
        assert!(poison.check(&(15..15)).is_ok(), "nothing is read");
        poison.clear(12..14);
        poison.clear(18..26);
        assert_eq!(poisoned(&poison), [10, 11, 14, 15, 16, 17, 26, 27, 28, 29]);
        poison.add(5..35, &error);
        assert_eq!(poisoned(&poison), (5..35).collect::<Vec<_>>());
        poison.clear(0..40);
        assert!(poison.is_empty());
    }

    #[test]
    fn the_message_says_once_why_a_value_is_missing() {
        let mut poison = Poison::default();
        poison.add(0..4, &Error::ResourceExhausted("no memory".into()));
        let first = poison.check(&(0..4)).unwrap_err();
        poison.add(8..12, &first);
        assert_eq!(poison.check(&(8..12)), Err(first.clone()));
        assert!(matches!(first, Error::ResourceExhausted(m) if m.ends_with("failed: no memory")));
    }
}
