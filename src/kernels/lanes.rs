//! The number of invocations that share a row: one answer for reductions, softmax and row-wise
//! fusion.

use crate::device::{Barriers, Profile};
use crate::error::{Error, Result};
use crate::kernels::iterations::STEPS;
use crate::shader::WORKGROUP;

/// The invocations that share a row through workgroup memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lanes {
    /// The number of invocations that share a row. One alone shares nothing, and meets no barrier.
    pub count: u32,
    /// Invocations of a workgroup, which has `workgroup / count` rows.
    pub workgroup: u32,
}

impl Lanes {
    /// A row for each invocation.
    pub const ONE: Self = Self { count: 1, workgroup: WORKGROUP };
    /// A row for each subgroup of a software adapter, which waits for no other subgroup at a
    /// barrier.
    const SUBGROUP: Self = Self { count: 8, workgroup: 8 };

    /// `count` invocations for each row.
    pub const fn wide(count: u32) -> Self {
        Self { count, workgroup: WORKGROUP }
    }

    /// For `rows` rows of `loads` loads each.
    pub const fn of(profile: Profile, rows: usize, loads: usize) -> Self {
        match (profile.barriers, loads) {
            (Barriers::Dear, 16..) if rows < 1000 => Self::SUBGROUP,
            (Barriers::Dear, _) | (Barriers::Cheap, 0..=4) => Self::ONE,
            (Barriers::Cheap, 5..=32) => Self::wide(4),
            (Barriers::Cheap, 33..=512) => Self::wide(32),
            (Barriers::Cheap, _) => Self::wide(256),
        }
    }

    /// The same, and the number of steps that an iteration of its loops takes. `longest` gives the
    /// most loads of an invocation for a number of steps.
    ///
    /// # Errors
    /// No number of lanes and steps makes the row short enough.
    pub fn within(
        profile: Profile,
        rows: usize,
        loads: usize,
        longest: impl Fn(usize) -> usize,
    ) -> Result<(Self, u32)> {
        let wanted = Self::of(profile, rows, loads);
        STEPS
            .into_iter()
            .flat_map(|steps| [wanted, Self::SUBGROUP, Self::wide(256)].map(|lanes| (lanes, steps)))
            .find(|(lanes, steps)| {
                lanes.count >= wanted.count
                    && loads <= lanes.count as usize * longest(*steps as usize)
            })
            .ok_or_else(|| {
                Error::Unimplemented(format!(
                    "a row of {loads} loads exceeds this kernel's limit on this adapter"
                ))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_beyond_the_limit_take_more_lanes_or_are_refused() {
        let lanes = |loads| Lanes::within(Profile::LLVMPIPE, 2000, loads, |steps| 1000 * steps);
        assert_eq!(lanes(1000).unwrap(), (Lanes::ONE, 1));
        assert_eq!(lanes(1001).unwrap(), (Lanes::SUBGROUP, 1));
        assert_eq!(lanes(8001).unwrap(), (Lanes::wide(256), 1));
        assert_eq!(lanes(256_001).unwrap(), (Lanes::wide(256), 8));
        assert!(lanes(64 * 256_000 + 1).unwrap_err().to_string().contains("16384001"));
    }

    #[test]
    fn lanes_fill_workgroups() {
        for profile in Profile::PRESETS {
            for rows in [1, 999, 1000, 100_000] {
                for loads in [0, 1, 16, 40, 600, 100_000] {
                    let lanes = Lanes::of(profile, rows, loads);
                    assert!(lanes.workgroup.is_multiple_of(lanes.count), "{profile} {lanes:?}");
                }
            }
        }
    }
}
