//! Cuts dispatches that would keep the GPU busy for too long into parts.
//!
//! Systems end a submission that runs for some seconds, and a dispatch cannot be submitted in two
//! parts. So a dispatch of much work is enqueued as several dispatches, each with a part of its
//! workgroups: the shader's second form takes the first workgroup and the whole grid as parameters.
//! Workgroups of a dispatch run in any order and do not wait for each other, so the results are the
//! same. Kernels know nothing of this.

use std::ops::Range;

use super::pace;
use super::profile::{Class, Profile};
use super::program::{Grid, Params, Program};
use crate::shader::Shader;

/// The longest time that a dispatch may be expected to take, in nanoseconds.
const LONGEST: u64 = 200_000_000;

/// The number of parts of a dispatch of `work`, as [`super::pace`] counts it, on a GPU that is
/// known to be `slowness` times slower than the reference. Each part has enough workgroups to keep
/// the GPU busy.
pub(super) fn count(profile: &Profile, grid: Grid, work: u64, slowness: f64) -> usize {
    let groups: usize = grid.0.iter().map(|n| *n as usize).product();
    let parts =
        wanted(profile, work, slowness).min(groups / profile.workgroups.max(1)).max(profile.parts);
    parts.min(longest(grid).1).max(1)
}

/// The number of parts of a dispatch of `work` with any number of workgroups.
fn wanted(profile: &Profile, work: u64, slowness: f64) -> usize {
    // No watchdog ends work on a processor.
    let slowness = if profile.class == Class::Software { 1.0 } else { slowness };
    ((work as f64 * slowness) as u64).div_ceil(LONGEST) as usize
}

/// Whether a dispatch of `work` would be cut into parts, if it had enough workgroups.
pub(super) fn is_cut(profile: &Profile, work: u64, slowness: f64) -> bool {
    wanted(profile, work, slowness).max(profile.parts) > 1
}

/// The number of workgroups that keep the reference GPU busy.
const REFERENCE_WORKGROUPS: usize = 64;

/// How often a dispatch of `groups` workgroups may repeat a step that touches `bytes` and does
/// `flops` operations, for kernels whose workgroups take one step after the other. A few workgroups
/// use only a part of the GPU. The bytes are weights, which a cache holds after the first step.
pub(super) fn repetitions(
    profile: &Profile,
    groups: usize,
    bytes: u64,
    flops: u64,
    slowness: f64,
) -> usize {
    match profile {
        // Tests cut into parts.
        Profile { parts: 2.., .. } => return 1,
        Profile { class: Class::Software, .. } => return usize::MAX,
        _ => {}
    }
    let work = work_of_step(groups, bytes, flops);
    ((LONGEST as f64 / (work as f64 * slowness)) as usize).max(1)
}

/// The work of one such step.
pub(super) fn work_of_step(groups: usize, bytes: u64, flops: u64) -> u64 {
    let idle = REFERENCE_WORKGROUPS.div_ceil(groups.max(1)) as u64;
    pace::of_work(bytes, flops.saturating_mul(idle)).max(1)
}

/// The dimension in which a grid has the most workgroups, and their number.
fn longest(grid: Grid) -> (usize, usize) {
    let sizes = grid.0.map(|n| n as usize);
    (0..3).map(|d| (d, sizes[d])).max_by_key(|(_, n)| *n).unwrap_or((0, 1))
}

/// The workgroups of each of the `count` parts, in the longest dimension.
pub(super) fn ranges(grid: Grid, count: usize) -> impl Iterator<Item = Range<u32>> {
    let size = longest(grid).1;
    (0..count).map(move |k| (size * k / count) as u32..(size * (k + 1) / count) as u32)
}

/// The program that runs the workgroups `range` of `program`. `part` makes the shader's form for
/// parts.
pub(super) fn part<'a>(
    program: &Program<'_>,
    part: &'a dyn Fn() -> Shader,
    range: Range<u32>,
) -> Program<'a> {
    let (dimension, _) = longest(program.grid);
    let (mut first, mut grid) = ([0; 3], program.grid.0);
    (first[dimension], grid[dimension]) = (range.start, range.end - range.start);
    let mut params: Params = program.params.clone();
    params.scalars.extend(first.into_iter().chain(program.grid.0));
    Program {
        key: program.key.clone().name("part"),
        shader: part,
        bindings: program.bindings.clone(),
        params,
        grid: Grid(grid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn work_beyond_the_longest_is_cut() {
        let gpu = Profile::AMD;
        let grid = Grid([1 << 12, 4, 1]);
        for (work, slowness, parts) in [
            (0, 1.0, 1),
            (SECOND / 5, 1.0, 1),
            (SECOND, 1.0, 5),
            (SECOND, 2.0, 10),
            // Each part keeps the GPU busy.
            (1000 * SECOND, 1.0, (1 << 14) / gpu.workgroups),
        ] {
            assert_eq!(count(&gpu, grid, work, slowness), parts, "{work} {slowness}");
        }
        assert_eq!(count(&gpu, Grid([gpu.workgroups as u32, 1, 1]), SECOND, 1.0), 1);
        assert_eq!(count(&Profile::LLVMPIPE, grid, SECOND, 9.0), 5, "no watchdog, no slowness");
        let tested = Profile { parts: 3, ..gpu };
        for (grid, parts) in [([1, 1, 1], 1), ([2, 1, 1], 2), ([2, 7, 2], 3)] {
            assert_eq!(count(&tested, Grid(grid), 0, 1.0), parts, "{grid:?}");
        }
    }

    #[test]
    fn repetitions_stay_within_the_longest() {
        let gpu = Profile::INTEL;
        // A millisecond of the reference GPU.
        let flops = 400_000_000;
        let of = |groups, flops, slowness| repetitions(&gpu, groups, 0, flops, slowness);
        assert_eq!(of(REFERENCE_WORKGROUPS, flops, 1.0), 200);
        assert_eq!(of(REFERENCE_WORKGROUPS / 4, flops, 1.0), 50, "a quarter is busy");
        assert_eq!(of(2 * REFERENCE_WORKGROUPS, flops, 2.0), 100);
        assert_eq!(of(1, u64::MAX, 1.0), 1);
        assert_eq!(repetitions(&gpu, 1, 30_000_000, 0, 1.0), 200, "a millisecond of bytes");
        assert_eq!(repetitions(&Profile::LLVMPIPE, 1, 0, u64::MAX, 1.0), usize::MAX);
        assert_eq!(repetitions(&Profile { parts: 3, ..gpu }, 1, 0, 0, 1.0), 1);
    }

    /// An LSTM of 256 units and one sequence, on a large card that has not been measured yet.
    #[test]
    fn usual_recurrent_layers_stay_whole() {
        let weights = 4 * 256 * 256;
        let steps = repetitions(&Profile::NVIDIA, 1, 4 * weights, 2 * weights, 1.0);
        assert!(steps >= 512, "{steps}");
    }

    #[test]
    fn parts_are_all_workgroups_once() {
        for (grid, n) in [([7, 1, 1], 3), ([2, 100, 1], 7), ([1, 1, 5], 5), ([3, 3, 3], 1)] {
            let all: Vec<u32> = ranges(Grid(grid), n).flatten().collect();
            assert!(all.iter().copied().eq(0..*grid.iter().max().unwrap()), "{grid:?}: {all:?}");
            assert!(ranges(Grid(grid), n).all(|range| !range.is_empty()));
        }
    }

    #[test]
    fn a_part_knows_where_it_is() {
        let shader = || Shader::new("a shader");
        let program = Program {
            key: super::super::Key::new("a shader"),
            shader: &shader,
            bindings: Default::default(),
            params: Params::new().u32(5_u32).list(&[9_u32]),
            grid: Grid([2, 70, 1]),
        };
        let part = part(&program, &shader, 10..30);
        assert_eq!(part.grid, Grid([2, 20, 1]));
        assert_eq!(part.params.scalars[..], [5, 0, 10, 0, 2, 70, 1]);
        assert_eq!(part.params.vec4s[..], [9, 0, 0, 0]);
        assert_ne!(part.key, program.key);
    }

    #[test]
    fn the_limit_is_that_of_the_reference() {
        assert_eq!(pace::of_dispatch(0, 80_000_000_000) / 1000, LONGEST / 1000 + 2);
    }
}
