//! Small tensors of a device that pages: they share buffers, which stay in device memory.
//!
//! Each buffer holds slots of one size, a power of two. A freed slot serves the next tensor of its
//! size.

use std::collections::BTreeMap;

/// Bytes of the largest tensor that gets a slot.
pub(crate) const LARGEST: u64 = 1 << 16;
/// Bytes of a buffer.
pub(crate) const ARENA: u64 = 1 << 20;
/// Bytes of the smallest slot.
const SMALLEST: u64 = 256;

/// The slots of a device.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    /// The bytes of a slot in the arena that starts at an address.
    arenas: BTreeMap<u64, u64>,
    /// Addresses of free slots, by their bytes.
    free: BTreeMap<u64, Vec<u64>>,
}

/// The bytes of the slot for a tensor of `bytes`.
pub(crate) fn slot_bytes(bytes: u64) -> u64 {
    bytes.next_power_of_two().max(SMALLEST)
}

impl Slots {
    /// The address of a free slot of `bytes`.
    pub fn take(&mut self, bytes: u64) -> Option<u64> {
        self.free.get_mut(&bytes)?.pop()
    }

    /// Adds a buffer for slots of `bytes`.
    pub fn add(&mut self, arena: u64, bytes: u64) {
        self.arenas.insert(arena, bytes);
        // The first slots are taken first.
        let slots = (0..ARENA / bytes).rev().map(|k| arena + k * bytes);
        self.free.entry(bytes).or_default().extend(slots);
    }

    /// Frees the slot at `address` and returns its bytes; None if there is no slot.
    pub fn give_back(&mut self, address: u64) -> Option<u64> {
        let (arena, bytes) = self.arenas.range(..=address).next_back()?;
        let offset = address - arena;
        if offset >= ARENA || !offset.is_multiple_of(*bytes) {
            return None;
        }
        self.free.entry(*bytes).or_default().push(address);
        Some(*bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_taken_and_given_back() {
        let mut slots = Slots::default();
        assert_eq!(slots.take(512), None);
        slots.add(ARENA, 512);
        slots.add(4 * ARENA, 65_536);
        assert_eq!((slots.take(512), slots.take(512)), (Some(ARENA), Some(ARENA + 512)));
        assert_eq!(slots.give_back(ARENA), Some(512));
        assert_eq!((slots.take(512), slots.take(512)), (Some(ARENA), Some(ARENA + 1024)));
        assert_eq!((1..20).filter_map(|_| slots.take(65_536)).count(), 16);
        assert_eq!(slots.give_back(4 * ARENA + 65_536), Some(65_536));
        for other in [ARENA + 100, 2 * ARENA, 5 * ARENA, 0] {
            assert_eq!(slots.give_back(other), None, "{other}");
        }
    }

    #[test]
    fn a_slot_is_less_than_twice_as_large_as_its_tensor() {
        assert_eq!([1, 256, 257, 40_000].map(slot_bytes), [256, 256, 512, 65_536]);
    }
}
