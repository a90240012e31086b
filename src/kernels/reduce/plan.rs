//! How a reduction over any axes becomes a sequence of steps over `[outer, extent, inner]`. This is
//! pure arithmetic, without a device.
//!
//! Neighbouring axes of one kind merge and extents of 1 vanish; the remaining groups are
//! alternately kept and reduced. Each step reduces one group, the largest first, to one value or to
//! a number of segments, which later steps reduce. Segments give a GPU enough invocations when the
//! outputs are few, and keep every accumulation short: a serial run has at most [`MAX_RUN`]
//! elements, so that float sums stay accurate whatever the extent.

use smallvec::SmallVec;

use crate::device::Profile;
use crate::kernels::lanes::Lanes;

/// The most elements that one invocation accumulates.
pub const MAX_RUN: usize = 4096;

/// A run of neighbouring axes that are all reduced or all kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// Product of their extents.
    pub extent: usize,
    /// Whether they are reduced.
    pub reduced: bool,
}

/// Alternating groups, outermost first.
pub type Groups = SmallVec<[Group; 6]>;

/// Appends a group. It is merged with the last one if both are of one kind; an extent of 1 belongs
/// to no group.
pub fn push(groups: &mut Groups, group: Group) {
    match groups.last_mut() {
        _ if group.extent == 1 => {}
        Some(last) if last.reduced == group.reduced => last.extent *= group.extent,
        _ => groups.push(group),
    }
}

/// One dispatch: `x[outer, extent, inner]` to `y[outer, segments, inner]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Product of the extents before the reduced group.
    pub outer: usize,
    /// Extent of the reduced group.
    pub extent: usize,
    /// Product of the extents behind it.
    pub inner: usize,
    /// Values that remain of each reduced run: it is cut into `segments` runs of neighbours, and
    /// segment `s` combines the `s`-th of them.
    pub segments: usize,
    /// Invocations that share a segment through workgroup memory.
    pub lanes: Lanes,
}

impl Step {
    /// A step that only maps and finishes `count` single elements, or fills `count` outputs with
    /// the identity.
    pub const fn each(count: usize, extent: usize) -> Self {
        Self { outer: count, extent, inner: 1, segments: 1, lanes: Lanes::ONE }
    }

    /// Whether lanes share segments whose neighbouring elements belong to other segments.
    pub const fn columns(&self) -> bool {
        self.lanes.count > 1 && self.inner > 1
    }

    /// Elements of the output.
    pub const fn outputs(&self) -> usize {
        self.outer * self.segments * self.inner
    }

    /// The step that reduces the largest reduced group, and the groups that remain after it.
    pub fn largest(profile: Profile, groups: &Groups) -> Option<(Self, Groups)> {
        let at =
            (0..groups.len()).filter(|g| groups[*g].reduced).max_by_key(|g| groups[*g].extent)?;
        let product = |range: &[Group]| range.iter().map(|g| g.extent).product::<usize>();
        let (outer, inner) = (product(&groups[..at]), product(&groups[at + 1..]));
        let extent = groups[at].extent;
        let (segments, lanes) = cut(profile, outer, extent, inner);
        let step = Self { outer, extent, inner, segments, lanes };
        let mut rest = Groups::new();
        for (g, group) in groups.iter().enumerate() {
            push(
                &mut rest,
                if g == at { Group { extent: step.segments, reduced: true } } else { *group },
            );
        }
        Some((step, rest))
    }
}

/// Segments and lanes for `outer * inner` runs of `extent` elements.
pub fn cut(profile: Profile, outer: usize, extent: usize, inner: usize) -> (usize, Lanes) {
    let (lanes, shortest) = if inner > 1 {
        (columns(extent), SHORTEST_COLUMN)
    } else {
        (Lanes::of(profile, outer, extent.div_ceil(4)), SHORTEST_ROW)
    };
    let invocations = outer * inner * lanes.count as usize;
    let run = extent.div_ceil(lanes.count as usize);
    let wanted = (profile.invocations / invocations.max(1)).min(run / shortest);
    (wanted.max(run.div_ceil(MAX_RUN)).clamp(1, (extent / 2).max(1)), lanes)
}

/// The shortest run of an invocation that is worth another step: a run of neighbouring elements,
/// and a run of elements whose neighbours belong to other runs.
const SHORTEST_ROW: usize = 16;
const SHORTEST_COLUMN: usize = 64;

/// Invocations that share a run whose neighbours belong to other runs.
const fn columns(extent: usize) -> Lanes {
    match extent {
        0..32 => Lanes::ONE,
        32..128 => Lanes::wide(4),
        128..512 => Lanes::wide(8),
        _ => Lanes::wide(32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(extent: usize, reduced: bool) -> Group {
        Group { extent, reduced }
    }

    fn groups(dims: &[usize], reduced: &[bool]) -> Groups {
        let mut out = Groups::new();
        for (&extent, &reduced) in dims.iter().zip(reduced) {
            push(&mut out, group(extent, reduced));
        }
        out
    }

    #[test]
    fn neighbours_merge_and_ones_vanish() {
        let g = groups(&[2, 3, 1, 4, 5], &[false, true, false, true, false]);
        assert_eq!(g[..], [group(2, false), group(12, true), group(5, false)]);
        assert!(groups(&[1, 1], &[true, false]).is_empty());
        assert_eq!(groups(&[0, 3], &[true, true])[..], [group(0, true)]);
    }

    #[test]
    fn steps_end_with_one_value_and_keep_runs_short() {
        for profile in [Profile::NVIDIA, Profile::LLVMPIPE] {
            for (dims, reduced) in [
                (vec![10_000_019], vec![true]),
                (vec![3, 1_000_000], vec![false, true]),
                (vec![1_000_000, 3], vec![true, false]),
                (vec![7, 300, 5, 400, 3, 2], vec![false, true, false, true, false, true]),
                (vec![2, 2], vec![true, false]),
            ] {
                let mut left = groups(&dims, &reduced);
                let kept: usize = left.iter().filter(|g| !g.reduced).map(|g| g.extent).product();
                let mut steps = 0;
                while let Some((step, rest)) = Step::largest(profile, &left) {
                    let run = step.extent.div_ceil(step.segments * step.lanes.count as usize);
                    assert!(run <= MAX_RUN, "{} {step:?}", profile.name);
                    assert!(step.segments < step.extent, "{} {step:?}", profile.name);
                    left = rest;
                    steps += 1;
                    assert!(steps < 20, "{} {dims:?} does not end", profile.name);
                }
                assert_eq!(left.iter().map(|g| g.extent).product::<usize>(), kept);
            }
        }
    }
}
