//! The last submission that uses each part of a block: before the host writes to memory where it
//! is, the GPU must be done with it.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::completion::Serial;

/// The most sections of a block.
const SECTIONS: u64 = 1 << 11;
/// The smallest section, in bytes: TensorFlow's tensors begin at multiples of it.
const SMALLEST: u64 = 256;

/// The last submissions that use the sections of a block. A use of a part counts for all of its
/// sections.
#[derive(Debug)]
pub(crate) struct LastUse {
    sections: Box<[AtomicU64]>,
    section: u64,
}

impl LastUse {
    /// For a block of this length that nothing has used.
    pub fn new(bytes: u64) -> Self {
        let section = bytes.div_ceil(SECTIONS).next_power_of_two().max(SMALLEST);
        Self {
            sections: (0..bytes.div_ceil(section)).map(|_| AtomicU64::new(0)).collect(),
            section,
        }
    }

    /// Notes that a submission uses a part of the block. Submissions come in order.
    pub fn note(&self, range: &Range<u64>, serial: Serial) {
        self.sections_of(range).iter().for_each(|section| section.store(serial, Ordering::Relaxed));
    }

    /// The last submission that may use a part of the block.
    pub fn of(&self, range: &Range<u64>) -> Serial {
        self.sections_of(range)
            .iter()
            .map(|section| section.load(Ordering::Relaxed))
            .max()
            .unwrap_or(0)
    }

    fn sections_of(&self, range: &Range<u64>) -> &[AtomicU64] {
        if range.is_empty() {
            return &[];
        }
        let last = ((range.end - 1) / self.section) as usize;
        &self.sections[(range.start / self.section) as usize..=last]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_was_used_last_when_any_of_its_sections_was() {
        let uses = LastUse::new(1 << 19);
        uses.note(&(300..500), 1);
        uses.note(&(512..1024), 2);
        uses.note(&(0..0), 9);
        assert_eq!(
            [(0..256), (256..260), (511..513), (1024..2048)].map(|r| uses.of(&r)),
            [0, 1, 2, 0]
        );
        assert_eq!(uses.of(&((1 << 19) - 1..1 << 19)), 0);
        assert_eq!(uses.of(&(7..7)), 0);
    }

    #[test]
    fn a_large_block_has_larger_sections() {
        let uses = LastUse::new((3 << 30) + 256);
        assert!(uses.sections.len() as u64 <= SECTIONS);
        uses.note(&(3 << 30..(3 << 30) + 256), 4);
        assert_eq!(uses.of(&(0..4096)), 0);
        assert_eq!(uses.of(&(0..(3 << 30) + 256)), 4);
    }
}
