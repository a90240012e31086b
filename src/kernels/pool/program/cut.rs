//! Parts of loops over windows: what a dispatch takes where whole windows are more iterations than
//! an adapter's loops may have.

use super::nest;
use crate::device::Params;
use crate::shader::Shader;

/// The text for whole windows.
pub(super) const WHOLE: &str = include_str!("../../../../shaders/pool/whole.wgsl");
const CUT: &str = include_str!("../../../../shaders/pool/cut.wgsl");

/// A box of the positions of each element's loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    low: [usize; 3],
    high: [usize; 3],
    is_first: bool,
    is_last: bool,
}

/// Declares what [`Part::params`] appends.
pub(super) fn declare(shader: Shader) -> Shader {
    shader
        .u32s(&["low0", "low1", "low2", "high0", "high1", "high2", "is_first", "is_last"])
        .body(CUT)
}

impl Part {
    pub fn params(&self, params: Params) -> Params {
        let params = self.low.iter().chain(&self.high).fold(params, |params, n| params.u32(*n));
        params.u32(usize::from(self.is_first)).u32(usize::from(self.is_last))
    }
}

/// Parts of three nested loops in row-major order, none of which has more than `most` iterations,
/// which must be at least three.
pub(super) fn parts(loops: [usize; 3], most: usize) -> Vec<Part> {
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
                parts.push(Part { low, high, is_first: false, is_last: false });
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
}
