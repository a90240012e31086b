//! How a transform of a given length is cut into passes. This is pure arithmetic, without a device.

use std::collections::HashMap;

/// Lengths that one pass transforms; 1 only copies. The registers of an invocation hold the largest
/// one.
pub const RADICES: &[usize] = &[1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 13, 16];

/// The longest line, so that index arithmetic stays within 32 bits.
pub const MAX_LENGTH: usize = (1 << 28) - 1;

/// How lines of one length are transformed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinePlan {
    /// By passes of these radices, whose product is the length.
    Passes(Vec<usize>),
    /// By Bluestein's algorithm: a cyclic convolution of this size, which has passes.
    Convolution(usize),
}

impl LinePlan {
    /// The plan of a length, which is not zero.
    pub fn of(n: usize) -> Self {
        factor(n).map_or_else(|| Self::Convolution(convolution(n)), Self::Passes)
    }

    /// The length of the lines that are held in between.
    pub const fn working_length(&self, n: usize) -> usize {
        match self {
            Self::Passes(_) => n,
            Self::Convolution(size) => *size,
        }
    }
}

/// The fewest radices whose product is `n`, and of these the radices with the least sum; `None` if
/// there is a large prime factor.
pub fn factor(n: usize) -> Option<Vec<usize>> {
    if n == 1 {
        return Some(vec![1]);
    }
    let mut known = HashMap::new();
    search(n, &mut known)
}

fn search(n: usize, known: &mut HashMap<usize, Option<Vec<usize>>>) -> Option<Vec<usize>> {
    if n == 1 {
        return Some(Vec::new());
    }
    if let Some(found) = known.get(&n) {
        return found.clone();
    }
    let mut best: Option<Vec<usize>> = None;
    for &radix in RADICES.iter().rev().filter(|r| **r > 1 && n.is_multiple_of(**r)) {
        if let Some(mut rest) = search(n / radix, known) {
            rest.push(radix);
            let cost = |list: &[usize]| (list.len(), list.iter().sum::<usize>());
            if best.as_ref().is_none_or(|b| cost(&rest) < cost(b)) {
                best = Some(rest);
            }
        }
    }
    known.insert(n, best.clone());
    best
}

/// The least size of at least `2 n - 1` elements that is a power of two, or three, five or seven
/// times a power of two.
fn convolution(n: usize) -> usize {
    let least = 2 * n - 1;
    [1, 3, 5, 7]
        .into_iter()
        .map(|odd| odd * least.div_ceil(odd).next_power_of_two())
        .min()
        .unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn radices_multiply_to_the_length() {
        for n in (1..3000).chain([1 << 20, 1_000_000, 3 * (1 << 18), 13 * 11 * 7 * 1024]) {
            match LinePlan::of(n) {
                LinePlan::Passes(radices) => {
                    assert_eq!(radices.iter().product::<usize>(), n);
                }
                LinePlan::Convolution(size) => {
                    assert!(size >= 2 * n - 1 && size < 4 * n);
                    assert!(factor(size).is_some());
                }
            }
        }
    }

    #[test]
    fn passes_are_few() {
        assert_eq!(factor(1 << 20).unwrap(), [16; 5]);
        assert_eq!(factor(1000).unwrap(), [10; 3]);
        let mut two = factor(32).unwrap();
        two.sort_unstable();
        assert_eq!(two, [4, 8]);
        assert_eq!(factor(17), None);
    }
}
