//! How the workgroups of a chosen tile share the tiles of the result: by estimates as in [`super`],
//! which here count waves. A wave is the set of workgroups that run at once. Where each workgroup
//! computes one tile, the last wave may leave most of a GPU idle.
//!
//! The profile's number of workgroups is an estimate from data sheets, and none of this has been
//! measured on a GPU. So another schedule must promise more than a small gain, and under
//! `TF_WGPU_AUTOTUNE` the data-parallel one is timed against it.

use super::super::Contraction;
use super::super::shares::{CORE, cores, resident};
use super::super::tile::Tile;
use super::{Choice, Demand, START, finish_cost, least_share, step_cost};
use crate::device::Schedule;

/// The largest part of the data-parallel schedule's time that stream-K may take: it writes sums of
/// cut tiles to memory, and waits for a second dispatch.
const STREAM_K_PAYS: f64 = 0.85;
/// The same for persistent workgroups, which save the start of a workgroup and nothing else.
const PERSISTENT_PAYS: f64 = 0.95;

/// Whether a tile has other schedules, and the adapter's number of resident workgroups is known.
pub(super) fn are_known(d: &Demand, tile: &Tile) -> bool {
    tile.steps(d.words).is_some() && resident(&d.profile, tile) > 0
}

/// A choice of [`Schedule::DataParallel`] with the schedule that is estimated to finish first, or
/// with the schedule that the profile sets.
pub(super) fn scheduled(d: &Demand, choice: Choice) -> Choice {
    if !are_known(d, choice.tile) {
        return choice;
    }
    let of = |schedule| match schedule {
        Schedule::StreamK => Choice { split_k: 1, schedule, ..choice },
        _ => Choice { schedule, ..choice },
    };
    if let Some(schedule) = d.profile.schedule {
        return of(schedule);
    }
    let costs = Costs::of(d, choice);
    // Longer sums are cut for their precision, by split-K.
    let stream_k = costs.stream_k < STREAM_K_PAYS * costs.data_parallel
        && d.depth <= Contraction::LONGEST_WHOLE;
    if stream_k {
        of(Schedule::StreamK)
    } else if costs.persistent < PERSISTENT_PAYS * costs.data_parallel {
        of(Schedule::Persistent)
    } else {
        choice
    }
}

/// The cores of a GPU, each of which runs as many workgroups of a tile.
struct Cores {
    count: usize,
    /// Workgroups of the tile on a core.
    each: usize,
}

impl Cores {
    fn of(d: &Demand, tile: &Tile) -> Self {
        let count = cores(&d.profile);
        Self { count, each: resident(&d.profile, tile).div_ceil(count) }
    }

    /// The part of a full device's time that workgroups take of which `most` share a core.
    fn share(tile: &Tile, most: usize) -> f64 {
        if most == 0 {
            return 0.0;
        }
        (most as f64 * f64::from(tile.threads()) / CORE as f64).max(least_share(tile))
    }

    /// The same of one wave after the other. The last one may leave cores with fewer workgroups.
    fn waves(&self, tile: &Tile, workgroups: usize) -> f64 {
        let wave = self.count * self.each;
        let last = (workgroups % wave).div_ceil(self.count);
        (workgroups / wave) as f64 * Self::share(tile, self.each) + Self::share(tile, last)
    }
}

/// The cost of each schedule, in products of one invocation.
struct Costs {
    data_parallel: f64,
    persistent: f64,
    stream_k: f64,
}

impl Costs {
    fn of(d: &Demand, Choice { tile, split_k, .. }: Choice) -> Self {
        let (workgroups, cores) = (resident(&d.profile, tile), Cores::of(d, tile));
        let (tiles, parts) = (tile.tiles(d.m, d.n) * d.batch, split_k.max(1));
        let step = step_cost(d, tile);
        let waves = cores.waves(tile, tiles * parts);
        let part = step * d.depth.div_ceil(parts) as f64;
        let finish = if parts > 1 { finish_cost(d, parts * d.m * d.n * d.batch) } else { 0.0 };
        let all = tiles as f64 / workgroups as f64 * Cores::share(tile, cores.each);
        let cut = 2 * workgroups * tile.m() * tile.n();
        Self {
            data_parallel: waves * (part + START) + finish,
            persistent: waves * part + START + finish,
            // A share begins and ends within a tile.
            stream_k: all * (step * d.depth as f64) + (all + 2.0) * START + finish_cost(d, cut),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tables;
    use super::super::super::tile::TileKind;
    use super::super::{candidates, choose};
    use super::*;
    use crate::device::{Capabilities, Cooperative, Profile};

    fn demand(profile: Profile, [m, depth, n]: [usize; 3]) -> Demand {
        let capabilities = Capabilities { workgroup_memory: 48 << 10, ..profile.capabilities };
        let profile = Profile { capabilities, ..profile };
        let (words, batch, by_depth, cooperative) = (1, 1, false, None);
        Demand { profile, words, m, n, depth, batch, by_depth, cooperative }
    }

    const GPUS: [Profile; 4] = [Profile::AMD, Profile::INTEL, Profile::NVIDIA, Profile::APPLE];

    /// 17 by 17 tiles of 128, where 16 by 16 workgroups run at once.
    #[test]
    fn a_last_wave_of_few_tiles_is_shared() {
        let d = demand(Profile::NVIDIA, [17 * 128, 4096, 17 * 128]);
        let choice = choose(&d);
        assert_eq!((choice.tile.m(), choice.schedule), (128, Schedule::StreamK), "{choice:?}");
        // The same in each of two results.
        let two = Demand { batch: 2, ..demand(Profile::NVIDIA, [13 * 128, 4096, 12 * 128]) };
        assert_eq!(choose(&two).schedule, Schedule::StreamK);
        // Matrices compute faster, so that the sums that go to memory weigh more.
        let matrices = Demand { cooperative: Some(Cooperative::F16), depth: 8192, ..d };
        let choice = choose(&matrices);
        assert!(choice.is_cooperative(), "{choice:?}");
        assert_eq!(choice.schedule, Schedule::StreamK, "{choice:?}");
    }

    #[test]
    fn full_waves_are_left_alone() {
        let d = demand(Profile::NVIDIA, [16 * 128, 4096, 16 * 128]);
        assert_eq!(choose(&d).schedule, Schedule::DataParallel);
        // Many waves stay data-parallel: the last one is a small part of them.
        for profile in GPUS {
            let d = demand(profile, [8192, 4096, 8192]);
            assert_eq!(choose(&d).schedule, Schedule::DataParallel, "{profile}");
        }
    }

    /// Split-K fills the device with a whole number of parts for each tile.
    #[test]
    fn split_k_stays_where_it_fills_the_device() {
        for profile in GPUS {
            let choice = choose(&demand(profile, [8, 100_000, 8]));
            assert_eq!(choice.schedule, Schedule::DataParallel, "{profile}: {choice:?}");
            assert!(choice.split_k * choice.tile.groups() as usize > 1, "{profile}: {choice:?}");
        }
        let tile = &tables::MANY_REGISTERS[0];
        let d = demand(Profile::NVIDIA, [16 * 128, 4096, 8 * 128]);
        let halves = scheduled(&d, Choice::of_tiles(tile, 2));
        assert_eq!((halves.split_k, halves.schedule), (2, Schedule::DataParallel));
        // 150 tiles leave two fifths of the workgroups idle, and cannot be cut in two at once.
        let d = demand(Profile::NVIDIA, [15 * 128, 4096, 10 * 128]);
        let shared = scheduled(&d, Choice::of_tiles(tile, 1));
        assert_eq!((shared.split_k, shared.schedule), (1, Schedule::StreamK));
    }

    /// Persistent workgroups pay where the start of a workgroup is a large part of its work.
    #[test]
    fn many_short_tiles_get_persistent_workgroups() {
        let tile = &tables::FEW_REGISTERS[0];
        assert!(matches!(tile.kind, TileKind::Workgroup { .. }));
        for profile in GPUS {
            let of = |depth| {
                let d = demand(profile, [1 << 16, depth, 1 << 10]);
                scheduled(&d, Choice::of_tiles(tile, 1)).schedule
            };
            assert_eq!(of(16), Schedule::Persistent, "{profile}");
            assert_eq!(of(1024), Schedule::DataParallel, "{profile}");
        }
    }

    #[test]
    fn long_sums_and_tiles_in_registers_are_not_shared() {
        let d = demand(Profile::NVIDIA, [17 * 128, Contraction::LONGEST_WHOLE + 1, 17 * 128]);
        assert_ne!(choose(&d).schedule, Schedule::StreamK);
        let registers = tables::MANY_REGISTERS.iter().find(|t| t.steps(1).is_none()).unwrap();
        let choice = Choice::of_tiles(registers, 1);
        assert_eq!(scheduled(&demand(Profile::NVIDIA, [17 * 128, 99, 17 * 128]), choice), choice);
    }

    #[test]
    fn software_adapters_and_unknown_gpus_have_a_workgroup_for_each_tile() {
        for profile in [Profile::LLVMPIPE, Profile::SWIFTSHADER, Profile::WEBGPU] {
            for extents in [[2176, 4096, 2176], [1 << 16, 16, 1024], [300, 300, 300]] {
                let d = demand(profile, extents);
                for choice in candidates(&d) {
                    assert_eq!(choice.schedule, Schedule::DataParallel, "{profile}: {choice:?}");
                }
            }
        }
    }

    /// A tuner finds out whether the estimate is right.
    #[test]
    fn the_data_parallel_schedule_is_a_candidate_too() {
        let d = demand(Profile::NVIDIA, [17 * 128, 4096, 17 * 128]);
        let all = candidates(&d);
        assert_eq!(all[0].schedule, Schedule::StreamK);
        assert_eq!(all[1], Choice::of_tiles(all[0].tile, 1));
        for choice in &all {
            assert_eq!(Choice::named(choice.name(), &d), Some(*choice));
        }
        let unknown = Profile { resident_workgroups: 0, ..d.profile };
        assert_eq!(Choice::named(all[0].name(), &Demand { profile: unknown, ..d }), None);
    }

    #[test]
    fn a_profile_forces_a_schedule() {
        for schedule in [Schedule::DataParallel, Schedule::Persistent, Schedule::StreamK] {
            let forced = Profile { schedule: Some(schedule), ..Profile::NVIDIA };
            assert_eq!(choose(&demand(forced, [17 * 128, 4096, 17 * 128])).schedule, schedule);
        }
    }
}
