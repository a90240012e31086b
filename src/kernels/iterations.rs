//! How kernels keep to [`Profile::loop_limit`]. If an invocation would have more iterations, each
//! iteration of its program's innermost loops takes several [`steps`], with the same results, or
//! several dispatches take [`parts`] of its loops, each of which goes on from the values that the
//! previous one stored.

use crate::device::{Parameter, Params, Profile};
use crate::error::{Error, Result};
use crate::shader::Shader;

/// The numbers of steps that an iteration of innermost loops may take, by preference. Software
/// adapters take seconds to compile longer programs.
pub const STEPS: [u32; 3] = [1, 8, 64];

/// The number of steps that an iteration takes. `iterations` gives the iterations of all loops of
/// an invocation for a number of steps.
///
/// # Errors
/// The adapter would leave a loop early for every number of steps.
pub fn steps(profile: &Profile, iterations: impl Fn(usize) -> usize) -> Result<u32> {
    let limit = profile.loop_limit;
    let fits = |steps: &u32| iterations(*steps as usize) <= limit;
    STEPS.into_iter().find(fits).ok_or_else(|| {
        Error::Unimplemented(format!(
            "windows that take {} steps for an element exceed what this adapter's limit of {limit} \
             iterations allows",
            iterations(1)
        ))
    })
}

/// Iterations of three nested loops.
pub const fn nest([a, b, c]: [usize; 3]) -> usize {
    a * (1 + b * (1 + c))
}

/// A box of the positions of each element's loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopPart {
    low: [usize; 3],
    high: [usize; 3],
    is_first: bool,
    is_last: bool,
}

impl Parameter for LoopPart {
    fn declare((): (), shader: Shader, _: &'static str) -> Shader {
        shader.u32s(&["low0", "low1", "low2", "high0", "high1", "high2", "is_first", "is_last"])
    }

    fn append_to(self, params: Params) -> Params {
        let params = self.low.iter().chain(&self.high).fold(params, |params, n| params.u32(*n));
        params.u32(usize::from(self.is_first)).u32(usize::from(self.is_last))
    }
}

/// Parts of three nested loops in row-major order. Each has at most `most` iterations, which must
/// be at least three.
pub fn parts(loops: [usize; 3], most: usize) -> Vec<LoopPart> {
    let [a, b, c] = loops;
    let (line, plane) = (1 + c, 1 + b * (1 + c));
    // Positions of each loop that a part takes.
    let at_once = if nest(loops) <= most {
        loops
    } else if nest([1, b, c]) <= most {
        [most / plane, b, c]
    } else if nest([1, 1, c]) <= most {
        [1, (most - 1) / line, c]
    } else {
        [1, 1, most - 2]
    };
    let mut parts = Vec::new();
    for i in (0..a).step_by(at_once[0].max(1)) {
        for j in (0..b).step_by(at_once[1].max(1)) {
            for k in (0..c).step_by(at_once[2].max(1)) {
                let low = [i, j, k];
                let high = [0, 1, 2].map(|d| (low[d] + at_once[d]).min(loops[d]));
                parts.push(LoopPart { low, high, is_first: false, is_last: false });
            }
        }
    }
    if let Some(first) = parts.first_mut() {
        first.is_first = true;
    }
    if let Some(last) = parts.last_mut() {
        last.is_last = true;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_every_position_once_in_order_and_stay_within_the_limit() {
        for loops in [[1, 5, 7], [3, 5, 7], [40, 1, 1], [1, 1, 40], [2, 3, 9]] {
            for most in [3, 8, 9, 20, 60, 1000] {
                let mut seen = Vec::new();
                let parts = parts(loops, most);
                for part in &parts {
                    let extent = |d: usize| part.high[d] - part.low[d];
                    assert!(nest([extent(0), extent(1), extent(2)]) <= most, "{part:?}, {most}");
                    for i in part.low[0]..part.high[0] {
                        for j in part.low[1]..part.high[1] {
                            seen.extend((part.low[2]..part.high[2]).map(|k| [i, j, k]));
                        }
                    }
                }
                let [a, b, c] = loops;
                let all = (0..a * b * c).map(|n| [n / c / b, n / c % b, n % c]);
                assert_eq!(seen, all.collect::<Vec<_>>(), "{loops:?}, {most}");
                let firsts: Vec<_> = parts.iter().map(|part| part.is_first).collect();
                let lasts: Vec<_> = parts.iter().rev().map(|part| part.is_last).collect();
                assert_eq!(firsts, lasts);
                assert!(firsts[0] && firsts.iter().filter(|first| **first).count() == 1);
            }
        }
    }

    #[test]
    fn iterations_take_as_few_steps_as_fit() {
        let profile = Profile { loop_limit: 100, ..Profile::LLVMPIPE };
        let of = |n: usize| steps(&profile, |steps| n.div_ceil(steps));
        assert_eq!([100, 101, 800, 801, 6400].map(|n| of(n).unwrap()), [1, 8, 8, 64, 64]);
        assert!(of(6401).unwrap_err().to_string().contains("6401"));
    }
}
