//! Caches bind groups by their bindings. Making one costs as much as recording several dispatches.
//!
//! TensorFlow's executor places a step's tensors at other addresses than in the step before, but
//! they have the same sizes and lie in the same few blocks. So offsets are not part of a group if
//! the adapter takes them with each dispatch.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::memory::Block;
use crate::error::Result;

/// The number of groups in a generation: at most twice as many are kept.
const GENERATION: usize = 1 << 13;
/// The bytes of freed blocks that groups may keep from the driver.
const MAX_DEAD_BYTES: u64 = 16 << 20;
/// The number of freed blocks that groups may keep.
const MAX_DEAD: usize = 64;

/// One binding: a block's number, its length, and the part of its offset that is not given with the
/// dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Range {
    pub block: u32,
    pub offset: u64,
    pub size: u64,
}

/// The bindings of a group, in order. They determine the layout too: all bindings are alike, except
/// for the uniform buffer of parameters.
pub(crate) type Ranges = SmallVec<[Range; 8]>;

/// The cache. It has two generations; the older one is dropped when the younger one is full, so
/// that groups in use stay.
pub(crate) struct BindGroups<G> {
    young: FxHashMap<Ranges, G>,
    old: FxHashMap<Ranges, G>,
    generation: usize,
    /// Freed blocks whose groups are still here. Block numbers are never used again, so no call
    /// will ask for these groups.
    dead: FxHashSet<u32>,
    dead_bytes: u64,
}

impl<G> Default for BindGroups<G> {
    fn default() -> Self {
        Self {
            young: FxHashMap::default(),
            old: FxHashMap::default(),
            generation: GENERATION,
            dead: FxHashSet::default(),
            dead_bytes: 0,
        }
    }
}

impl<G: Clone> BindGroups<G> {
    /// The group of `ranges`, made at the first call. A failure is not kept.
    pub fn get(&mut self, ranges: &Ranges, make: impl FnOnce() -> Result<G>) -> Result<G> {
        if let Some(group) = self.young.get(ranges) {
            return Ok(group.clone());
        }
        let group = self.old.remove(ranges).map_or_else(make, Ok)?;
        if self.young.len() >= self.generation {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(ranges.clone(), group.clone());
        Ok(group)
    }

    /// Notes that a block was freed. Its groups keep its memory from the driver; they are dropped
    /// once enough of them have gathered.
    pub fn free(&mut self, block: &Block) {
        self.forget(block.id, block.bytes);
    }

    /// Does the same for the buffer of `bytes` that `block` stands for.
    pub fn forget(&mut self, block: u32, bytes: u64) {
        self.dead.insert(block);
        self.dead_bytes += bytes;
        if self.dead.len() >= MAX_DEAD || self.dead_bytes >= MAX_DEAD_BYTES {
            self.sweep();
        }
    }

    /// The number of groups kept.
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Drops the groups of freed blocks. Returns whether there were freed blocks.
    pub fn sweep(&mut self) -> bool {
        if self.dead.is_empty() {
            return false;
        }
        let alive =
            |ranges: &Ranges, _: &mut G| ranges.iter().all(|r| !self.dead.contains(&r.block));
        self.young.retain(alive);
        self.old.retain(alive);
        self.dead.clear();
        self.dead_bytes = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::error::Error;

    fn ranges(block: u32, offset: u64) -> Ranges {
        smallvec![Range { block, offset, size: 256 }, Range { block: 0, offset: 0, size: 256 }]
    }

    fn groups(generation: usize) -> BindGroups<u64> {
        BindGroups { generation, ..BindGroups::default() }
    }

    #[test]
    fn a_group_is_made_once() {
        let mut groups = groups(10);
        assert_eq!(groups.get(&ranges(1, 0), || Ok(7)), Ok(7));
        assert_eq!(groups.get(&ranges(1, 0), || unreachable!("it is there")), Ok(7));
        assert_eq!(groups.get(&ranges(1, 256), || Ok(8)), Ok(8));
    }

    #[test]
    fn one_that_cannot_be_made_is_tried_again() {
        let (mut groups, error) = (groups(10), Error::ResourceExhausted("no memory".into()));
        assert_eq!(groups.get(&ranges(1, 0), || Err(error.clone())), Err(error));
        assert_eq!(groups.get(&ranges(1, 0), || Ok(7)), Ok(7));
    }

    #[test]
    fn what_is_in_use_outlives_a_generation() {
        let mut groups = groups(10);
        groups.get(&ranges(1, 0), || Ok(7)).unwrap();
        groups.get(&ranges(2, 0), || Ok(9)).unwrap();
        for k in 1..50 {
            groups.get(&ranges(1, k * 256), || Ok(k)).unwrap();
            assert_eq!(
                groups.get(&ranges(1, 0), || unreachable!("it was used a moment ago")),
                Ok(7)
            );
            assert!(groups.len() <= 20);
        }
        assert_eq!(
            groups.get(&ranges(2, 0), || Ok(10)),
            Ok(10),
            "it was not used for two generations"
        );
    }

    #[test]
    fn groups_of_freed_blocks_go() {
        let mut groups = groups(1000);
        for block in 1..=100 {
            groups.get(&ranges(block, 0), || Ok(1)).unwrap();
        }
        groups.forget(1, 256);
        assert_eq!(groups.young.len(), 100, "one small block is worth no walk");
        groups.forget(2, MAX_DEAD_BYTES);
        assert_eq!(groups.young.len(), 98, "a large one is");
        for block in 3..3 + MAX_DEAD as u32 {
            groups.forget(block, 256);
        }
        assert_eq!(groups.young.len(), 98 - MAX_DEAD);
        groups.forget(100, 256);
        assert!(groups.sweep() && !groups.sweep());
        assert_eq!(groups.young.len(), 97 - MAX_DEAD);
        assert_eq!((groups.dead.len(), groups.dead_bytes), (0, 0));
    }
}
