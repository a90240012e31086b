//! The reductions of integers that TensorFlow has only CPU kernels for; with these rows their nodes
//! stay on the device. They wrap as those kernels do, in the elements' own type; a mean is the sum
//! in 64 bits, divided, without its fraction. int32 stays with TensorFlow, whose int32 tensors are
//! shapes.

use super::table::{COMPLEX_REDUCTIONS, Combine, Finish, Identity, REDUCTIONS, Reduction};
use crate::dtype::DType::{self, *};
use crate::dtype::types::SIGNED_BUT_I32;

/// The integers that TensorFlow's GPU kernels do not reduce.
const OTHERS: &[DType] = &[I8, I16, U8, U16, U32, U64];

/// A mean, whose sum is exact up to 64 bits.
const fn mean(types: &'static [DType], map: Option<&'static str>) -> Reduction {
    Reduction {
        op: "Mean",
        types,
        wide: true,
        identity: Identity::Zero,
        map,
        combine: Combine::Add,
        finish: Finish::IntegerMean,
        reference: |x| {
            if x.is_empty() { 0.0 } else { (x.iter().sum::<f64>() / x.len() as f64).trunc() }
        },
    }
}

/// A norm, whose sum of squares wraps. `root` is WGSL of the result.
const fn norm(types: &'static [DType], root: &'static str) -> Reduction {
    Reduction {
        op: "EuclideanNorm",
        types,
        wide: false,
        identity: Identity::Zero,
        map: Some("x * x"),
        combine: Combine::Add,
        finish: Finish::IntegerRoot(root),
        reference: |x| x.iter().map(|v| v * v).sum::<f64>().sqrt().trunc(),
    }
}

/// A row whose elements and result are of the accumulator's kind.
const fn plain(
    op: &'static str,
    types: &'static [DType],
    identity: Identity,
    combine: Combine,
    reference: fn(&[f64]) -> f64,
) -> Reduction {
    Reduction {
        op,
        types,
        wide: false,
        identity,
        map: None,
        combine,
        finish: Finish::Accumulated,
        reference,
    }
}

/// The rows, sorted by name.
pub const INTEGER_REDUCTIONS: &[Reduction] = &[
    norm(&[I8, I16], "root_i32(extractBits(a, 0u, {{BITS}}u))"),
    norm(&[U8, U16], "root_u32(extractBits(a, 0u, {{BITS}}u))"),
    norm(&[U32], "root_u32(a)"),
    norm(&[I64], "root_i64(a)"),
    norm(&[U64], "root_u64(a)"),
    plain("Max", OTHERS, Identity::Lowest, Combine::Greater, |x| {
        x.iter().copied().fold(f64::NEG_INFINITY, f64::max)
    }),
    mean(SIGNED_BUT_I32, Some("Accumulator(x)")),
    // naga may extend the sign of a u32 that becomes 64 bits wide.
    mean(&[U8, U16, U32], Some("Accumulator(x) & 0xfffffffflu")),
    mean(&[U64], None),
    plain("Min", OTHERS, Identity::Highest, Combine::Lesser, |x| {
        x.iter().copied().fold(f64::INFINITY, f64::min)
    }),
    plain("Prod", OTHERS, Identity::One, Combine::Multiply, |x| x.iter().product()),
    plain("Sum", OTHERS, Identity::Zero, Combine::Add, |x| x.iter().sum()),
];

/// The rows of all tables.
pub fn every_row() -> impl Iterator<Item = &'static Reduction> {
    REDUCTIONS.iter().chain(COMPLEX_REDUCTIONS).chain(INTEGER_REDUCTIONS)
}
