//! Finds the dispatches of a pass that wait for earlier ones: the dispatches that wgpu puts a
//! barrier before, and those that need one because of the memory that they read and write.
//!
//! wgpu-core 30 tracks one state for each buffer, not for its parts. It puts a barrier between two
//! uses as `STORAGE_READ_WRITE` even if they touch different parts (`track/mod.rs`,
//! `skip_barrier`). On Vulkan that is a pipeline barrier from all earlier compute work to all later
//! compute work (`vulkan/command.rs`, `transition_buffers`), so any common buffer keeps two
//! dispatches apart. There is no barrier between the first uses of different buffers in a pass.

use std::ops::Range;

use rustc_hash::FxHashMap;

/// A part of a block that a dispatch may touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Access {
    /// The block's number.
    pub block: u32,
    pub bytes: Range<u64>,
    pub reads: bool,
    pub writes: bool,
}

/// The barriers before a dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Barriers {
    /// wgpu's own rule puts a barrier there.
    pub implied: bool,
    /// It has a RAW, WAW or WAR hazard with an earlier dispatch: it reads bytes that the earlier
    /// one writes, or writes bytes that the earlier one reads or writes.
    pub needed: bool,
}

/// The parts of a block that dispatches have touched since the block's last barrier.
#[derive(Debug, Default)]
struct Touched {
    read: Vec<Range<u64>>,
    written: Vec<Range<u64>>,
}

/// Adds a part to parts of a block. A part that meets another one extends it.
fn note(parts: &mut Vec<Range<u64>>, bytes: &Range<u64>) {
    match parts.iter_mut().find(|part| part.start <= bytes.end && bytes.start <= part.end) {
        Some(part) => *part = part.start.min(bytes.start)..part.end.max(bytes.end),
        None => parts.push(bytes.clone()),
    }
}

/// The hazards of the open pass.
#[derive(Debug, Default)]
pub(crate) struct Hazards {
    blocks: FxHashMap<u32, Touched>,
}

impl Hazards {
    /// Whether no dispatch of the pass has bound `block`.
    pub fn is_first(&self, block: u32) -> bool {
        !self.blocks.contains_key(&block)
    }

    /// Adds a dispatch that touches `accesses`. Fills `at` with the blocks for which it must wait.
    pub fn dispatch(&mut self, accesses: &[Access], at: &mut Vec<u32>) -> Barriers {
        at.clear();
        let implied = accesses.iter().any(|a| !self.is_first(a.block));
        for access in accesses {
            if let Some(touched) = self.blocks.get(&access.block)
                && touched.conflicts_with(access)
                && !at.contains(&access.block)
            {
                at.push(access.block);
            }
        }
        for block in &*at {
            if let Some(touched) = self.blocks.get_mut(block) {
                touched.read.clear();
                touched.written.clear();
            }
        }
        for Access { block, bytes, reads, writes } in accesses {
            let touched = self.blocks.entry(*block).or_default();
            if *reads {
                note(&mut touched.read, bytes);
            }
            if *writes {
                note(&mut touched.written, bytes);
            }
        }
        Barriers { implied, needed: !at.is_empty() }
    }

    /// Ends the pass. All later work waits for it.
    pub fn end(&mut self) {
        self.blocks.clear();
    }
}

impl Touched {
    fn conflicts_with(&self, access: &Access) -> bool {
        let overlaps =
            |other: &Range<u64>| other.start < access.bytes.end && access.bytes.start < other.end;
        self.written.iter().any(overlaps) || access.writes && self.read.iter().any(overlaps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Barriers = Barriers { implied: false, needed: false };
    const IMPLIED: Barriers = Barriers { implied: true, needed: false };
    const NEEDED: Barriers = Barriers { implied: true, needed: true };

    fn read(block: u32, bytes: Range<u64>) -> Access {
        Access { block, bytes, reads: true, writes: false }
    }

    fn write(block: u32, bytes: Range<u64>) -> Access {
        Access { block, bytes, reads: false, writes: true }
    }

    /// The barriers before each dispatch of a pass.
    fn pass(dispatches: &[&[Access]]) -> Vec<Barriers> {
        let (mut hazards, mut at) = (Hazards::default(), Vec::new());
        dispatches.iter().map(|accesses| hazards.dispatch(accesses, &mut at)).collect()
    }

    #[test]
    fn one_buffer_is_one_thing_to_wgpu() {
        let parts = pass(&[&[write(1, 0..64)], &[write(1, 64..128)], &[read(1, 128..192)]]);
        assert_eq!(parts, [NONE, IMPLIED, IMPLIED]);
        let blocks = pass(&[&[write(1, 0..64)], &[write(2, 0..64)], &[write(3, 0..64)]]);
        assert_eq!(blocks, [NONE; 3]);
        assert_eq!(pass(&[&[read(1, 0..64)], &[read(1, 0..64)]]), [NONE, IMPLIED]);
    }

    #[test]
    fn what_overlaps_needs_a_barrier() {
        let after = |first: Access, second: Access| pass(&[&[first], &[second]])[1];
        assert_eq!(after(write(1, 0..64), read(1, 60..100)), NEEDED, "read after write");
        assert_eq!(after(read(1, 0..64), write(1, 60..100)), NEEDED, "write after read");
        assert_eq!(after(write(1, 0..64), write(1, 0..4)), NEEDED, "write after write");
        assert_eq!(after(read(1, 0..64), read(1, 0..64)), IMPLIED, "read after read");
        assert_eq!(after(write(1, 0..64), read(1, 64..100)), IMPLIED, "next to it");
        assert_eq!(after(write(1, 0..64), read(2, 0..64)), NONE, "elsewhere");
    }

    #[test]
    fn a_barrier_serves_what_follows() {
        let steps = pass(&[
            &[write(1, 0..64)],
            &[write(1, 64..128)],
            &[read(1, 0..64), write(1, 128..192)],
            // The second dispatch comes before the barrier, too.
            &[read(1, 64..128), write(1, 192..256)],
            &[read(1, 128..192)],
        ]);
        assert_eq!(steps, [NONE, IMPLIED, NEEDED, IMPLIED, NEEDED]);
    }

    #[test]
    fn a_barrier_of_one_block_is_none_of_another() {
        let steps = pass(&[
            &[write(1, 0..64), write(2, 0..64)],
            &[read(1, 0..64)],
            &[read(2, 0..64)],
            &[read(1, 0..64), read(2, 0..64)],
        ]);
        assert_eq!(steps, [NONE, NEEDED, NEEDED, IMPLIED]);
    }

    #[test]
    fn the_blocks_to_wait_for_are_told_once() {
        let (mut hazards, mut at) = (Hazards::default(), Vec::new());
        hazards.dispatch(&[write(1, 0..64), write(2, 0..64), write(3, 0..64)], &mut at);
        assert!(at.is_empty() && !hazards.is_first(3) && hazards.is_first(4));
        hazards
            .dispatch(&[read(1, 0..4), read(1, 8..12), write(3, 0..4), read(2, 64..68)], &mut at);
        assert_eq!(at, [1, 3]);
        hazards.end();
        assert!((1..=3).all(|block| hazards.is_first(block)));
    }

    /// Needed barriers separate all conflicting accesses, however they are spread over a pass.
    #[test]
    fn what_conflicts_never_runs_side_by_side() {
        let mut state = 7_u64;
        let mut random = move |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        for _ in 0..200 {
            let (mut hazards, mut at) = (Hazards::default(), Vec::new());
            // Accesses since each block's last barrier.
            let mut open: Vec<Access> = Vec::new();
            for _ in 0..30 {
                let accesses: Vec<Access> = (0..3)
                    .map(|_| {
                        let start = random(16) * 4;
                        let (reads, writes) =
                            [(true, false), (false, true), (true, true)][random(3) as usize];
                        let bytes = start..start + 4 + random(3) * 4;
                        Access { block: random(2) as u32, bytes, reads, writes }
                    })
                    .collect();
                hazards.dispatch(&accesses, &mut at);
                open.retain(|a| !at.contains(&a.block));
                for (a, b) in open.iter().flat_map(|a| accesses.iter().map(move |b| (a, b))) {
                    let overlap = a.bytes.start < b.bytes.end && b.bytes.start < a.bytes.end;
                    let conflict = a.block == b.block && overlap && (a.writes || b.writes);
                    assert!(!conflict, "{a:?} and {b:?}");
                }
                open.extend(accesses);
            }
        }
    }
}
