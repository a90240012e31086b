//! How workgroups share tiles once a choice is made: the work that a [`Schedule`] gives for a
//! number of tiles, and the arithmetic of stream-K's shares, which shaders/contract/shares.wgsl
//! repeats.

use super::tile::Tile;
use crate::device::{Params, Profile, Schedule};
use crate::kernels::windows::limit;

/// Tiles that are to be shared.
pub(super) struct Tiles {
    /// The number of tiles of all results and splits.
    pub count: usize,
    /// Length of the contracted index.
    pub depth: usize,
    /// Bytes of a sum.
    pub sum: usize,
    /// Whether sums of parts of a tile may go to memory.
    pub may_cut: bool,
}

/// The work that is carried out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// A workgroup for each tile.
    Tiles,
    /// This many workgroups that take tile after tile.
    Persistent(usize),
    /// A workgroup for each share, and a program that adds up cut tiles.
    Shares(Shares),
}

impl Work {
    /// The work of a schedule. It is that of a simpler schedule if the two are the same, or if this
    /// one does not fit.
    pub fn new(tile: &Tile, schedule: Schedule, tiles: &Tiles, profile: &Profile) -> Self {
        let resident = resident(profile, tile);
        let (Some(steps), true) = (tile.steps(tiles.sum / 4), resident > 0) else {
            return Self::Tiles;
        };
        let of_tile = tiles.depth.div_ceil(steps);
        // Iterations of a workgroup: two for each step, and its inner loop by fours.
        let fits = |workgroups: usize| {
            (tiles.count * of_tile).div_ceil(workgroups) * (2 + steps / 4) <= profile.loop_limit
        };
        let persistent = || {
            let pays = tiles.count > resident && fits(resident);
            if pays { Self::Persistent(resident) } else { Self::Tiles }
        };
        match schedule {
            Schedule::DataParallel => Self::Tiles,
            Schedule::Persistent => persistent(),
            Schedule::StreamK => {
                let slot = tile.m() * tile.n() * tiles.sum;
                let fitting = |shares: &Shares| {
                    tiles.may_cut
                        && fits(shares.count)
                        && (shares.slots() * slot) as u64 <= limit(&profile.capabilities)
                };
                let shares = Shares::new(tiles.count, of_tile, resident);
                shares.filter(fitting).map_or_else(persistent, Self::Shares)
            }
        }
    }
}

/// Invocations that a core (a compute unit, a multiprocessor) runs at once, four for each lane of
/// its FMA units.
pub(super) const CORE: usize = 512;

/// The adapter's cores, each of which runs [`CORE`] invocations with tiles in workgroup memory.
pub(super) fn cores(profile: &Profile) -> usize {
    (profile.resident_workgroups * 256 / CORE).max(1)
}

/// The most bytes of a tile that [`Profile::resident_workgroups`] counts. Two of them fill the
/// memory of a core.
const LARGEST: u32 = 32 << 10;

/// Workgroups of a tile that the adapter runs at once: the fewer invocations each has, the more
/// workgroups run, as far as there is workgroup memory.
pub(super) fn resident(profile: &Profile, tile: &Tile) -> usize {
    let by_memory = (2 * LARGEST / tile.workgroup_memory().max(1)) as usize;
    let by_invocations = profile.resident_workgroups * 256 / tile.threads() as usize;
    by_invocations.min((profile.resident_workgroups * by_memory).div_ceil(2))
}

/// The steps of all tiles one after the other, cut into shares whose lengths differ by at most one
/// step.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shares {
    /// Steps of a tile.
    steps: usize,
    /// Shares.
    pub count: usize,
    /// Steps of a share.
    share: usize,
    /// Shares from the first one on that have one step more.
    longer: usize,
}

impl Shares {
    /// At most `most` shares of tiles of `steps` steps each. None if they cut no tile, or if there
    /// are too many steps.
    pub fn new(tiles: usize, steps: usize, most: usize) -> Option<Self> {
        let total = tiles * steps;
        let count = most.min(total);
        let shares = Self { steps, count, share: total / count, longer: total % count };
        let cuts = (1..count).any(|share| !shares.start(share).is_multiple_of(steps));
        // The limit keeps sums in shaders from wrapping.
        (cuts && total < 1 << 31).then_some(shares)
    }

    /// The first step of a share.
    fn start(&self, share: usize) -> usize {
        share * self.share + share.min(self.longer)
    }

    /// Slots for sums of parts of tiles.
    pub const fn slots(&self) -> usize {
        2 * self.count
    }

    /// Appends the parameters of the shader.
    pub fn params(&self, params: Params) -> Params {
        params.u32(self.steps).u32(self.count).u32(self.share).u32(self.longer)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tables::MANY_REGISTERS;
    use super::*;

    /// The segments that share `share` computes: a tile, its steps from and to, and its slot if it
    /// is cut.
    fn segments(s: &Shares, share: usize) -> Vec<(usize, usize, usize, Option<usize>)> {
        let (mut step, end, mut out) = (s.start(share), s.start(share + 1), Vec::new());
        while step < end {
            let first = step / s.steps * s.steps;
            let next = (first + s.steps).min(end);
            let slot = (next - step < s.steps).then_some(2 * share + usize::from(step == first));
            out.push((step / s.steps, step - first, next - first, slot));
            step = next;
        }
        out
    }

    /// The tile that the fix-up's workgroup for `share` adds up, and the slots, in this order.
    fn fixed(s: &Shares, share: usize) -> Option<(usize, Vec<usize>)> {
        let start = s.start(share);
        let first = start / s.steps * s.steps;
        if start == first || s.start(share - 1) > first {
            return None;
        }
        let others = (share..s.count).take_while(|o| s.start(*o) < first + s.steps);
        Some((
            start / s.steps,
            std::iter::once(2 * share - 1).chain(others.map(|o| 2 * o)).collect(),
        ))
    }

    #[test]
    fn every_step_is_computed_once_and_cut_tiles_are_added_up_in_their_order() {
        for (tiles, steps, most) in
            [(1, 7, 3), (1, 2, 9), (5, 3, 2), (7, 1, 3), (10, 13, 4), (3, 50, 64), (289, 256, 256)]
        {
            let Some(s) = Shares::new(tiles, steps, most) else {
                assert_eq!((tiles, steps), (7, 1), "nothing to cut");
                continue;
            };
            let parts: Vec<_> = (0..s.count).flat_map(|share| segments(&s, share)).collect();
            let mut at = 0;
            for (tile, from, to, _) in &parts {
                assert_eq!(tile * steps + from, at, "{s:?}");
                at = tile * steps + to;
            }
            assert_eq!(at, tiles * steps, "{s:?}");
            let lengths = (0..s.count).map(|share| s.start(share + 1) - s.start(share));
            assert!(lengths.clone().max().unwrap() - lengths.min().unwrap() <= 1, "{s:?}");
            let fixed: Vec<_> = (1..s.count).filter_map(|share| fixed(&s, share)).collect();
            for tile in 0..tiles {
                let slots: Vec<usize> =
                    parts.iter().filter(|p| p.0 == tile).filter_map(|p| p.3).collect();
                let own: Vec<_> = fixed.iter().filter(|f| f.0 == tile).collect();
                match slots.len() {
                    0 => assert!(own.is_empty(), "{s:?}: tile {tile} is whole"),
                    _ => assert_eq!(own, [&(tile, slots)], "{s:?}"),
                }
            }
            let mut slots: Vec<_> = parts.iter().filter_map(|p| p.3).collect();
            slots.sort_unstable();
            assert!(slots.is_sorted_by(|x, y| x < y) && slots.iter().all(|x| *x < s.slots()));
        }
    }

    #[test]
    fn what_does_not_fit_or_is_the_same_is_simpler() {
        let tile = &MANY_REGISTERS[0];
        let of =
            |schedule, tiles: Tiles, profile: &Profile| Work::new(tile, schedule, &tiles, profile);
        let tiles = |count, depth| Tiles { count, depth, sum: 4, may_cut: true };
        let three = Profile { resident_workgroups: 3, ..Profile::NVIDIA };
        let (persistent, stream_k) = (Schedule::Persistent, Schedule::StreamK);
        assert_eq!(of(persistent, tiles(4, 99), &three), Work::Persistent(3));
        assert_eq!(of(persistent, tiles(3, 99), &three), Work::Tiles);
        let shares = Shares { steps: 7, count: 3, share: 9, longer: 1 };
        assert_eq!(of(stream_k, tiles(4, 99), &three), Work::Shares(shares));
        let whole = Tiles { may_cut: false, ..tiles(4, 99) };
        assert_eq!(of(stream_k, whole, &three), Work::Persistent(3));
        assert_eq!(of(stream_k, tiles(6, 99), &three), Work::Persistent(3), "none is cut");
        assert_eq!(of(stream_k, tiles(4, 9), &three), Work::Persistent(3), "of one step each");
        let low = Profile { loop_limit: 40, ..three };
        assert_eq!(of(stream_k, tiles(4, 99), &low), Work::Tiles);
        assert_eq!(of(stream_k, tiles(4, 99), &Profile::LLVMPIPE), Work::Tiles);
        let registers = MANY_REGISTERS.iter().find(|t| t.steps(1).is_none()).unwrap();
        assert_eq!(Work::new(registers, stream_k, &tiles(4, 99), &three), Work::Tiles);
    }
}
