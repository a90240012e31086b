//! The reductions: one row each. The kernels, the registration and the tests' oracle all read these
//! rows.

use crate::dtype::types::{COMPLEX, FLOATS, INDEX};
use crate::dtype::{
    DType::{self, *},
    union,
};

/// The value that leaves every other value unchanged when combined with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Identity {
    Zero,
    One,
    /// Minus infinity, or the lowest integer.
    Lowest,
    /// Infinity, or the highest integer.
    Highest,
}

/// How two accumulated values `a` and `b` become one; associative and commutative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Combine {
    Add,
    Multiply,
    MultiplyComplex,
    And,
    Or,
    /// The greater one, or NaN, as TensorFlow's Max does.
    Greater,
    /// The lesser one, or NaN, as TensorFlow's Min does.
    Lesser,
}

impl Combine {
    /// WGSL of the combined value.
    pub const fn wgsl(self) -> &'static str {
        match self {
            Self::Add => "a + b",
            Self::Multiply => "a * b",
            Self::MultiplyComplex => "vec2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x)",
            Self::And => "a & b",
            Self::Or => "a | b",
            Self::Greater => "greater(a, b)",
            Self::Lesser => "lesser(a, b)",
        }
    }

    /// The functions `greater` and `lesser` for values of type `accumulator`, if the text calls
    /// one of them.
    pub const fn functions(self, accumulator: DType) -> &'static str {
        match (self, accumulator) {
            (Self::Greater | Self::Lesser, F32) => {
                include_str!("../../../shaders/reduce_order_f32.wgsl")
            }
            (Self::Greater | Self::Lesser, _) => include_str!("../../../shaders/reduce_order.wgsl"),
            _ => "",
        }
    }
}

/// How the result is computed from the accumulated value `a`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// It is the accumulated value.
    Accumulated,
    /// The accumulated value divided by `count`, the number of reduced elements.
    Mean,
    /// The same for integers, whose sum may be wider than the result.
    IntegerMean,
    /// This WGSL of integers, which calls a function of the library of roots.
    IntegerRoot(&'static str),
    /// This WGSL.
    Of(&'static str),
}

impl Finish {
    /// WGSL of the result of type `dtype`, from `a` and `count`, both of the accumulator's type.
    pub fn wgsl(self, dtype: DType) -> String {
        match self {
            Self::Accumulated => "a".to_owned(),
            Self::Mean => "a / count".to_owned(),
            Self::IntegerMean => format!("{}(a / count)", dtype.value()),
            Self::IntegerRoot(text) => text.replace("{{BITS}}", &(8 * dtype.size()).to_string()),
            Self::Of(text) => text.to_owned(),
        }
    }

    /// Whether the result depends on the number of reduced elements.
    pub const fn counts(self) -> bool {
        matches!(self, Self::Mean | Self::IntegerMean)
    }
}

/// A reduction: `finish(combine(map(x0), combine(map(x1), …)))`.
#[derive(Debug, Clone, Copy)]
pub struct Reduction {
    /// TensorFlow's op.
    pub op: &'static str,
    /// Its input types.
    pub types: &'static [DType],
    /// Whether integers are accumulated in 64 bits.
    pub wide: bool,
    /// The start of every accumulation, and the accumulated value if there is nothing to reduce.
    pub identity: Identity,
    /// WGSL of the value that is accumulated for the element `x`; without it, `x` itself is.
    pub map: Option<&'static str>,
    /// How values are accumulated.
    pub combine: Combine,
    /// How the result is computed from the accumulated value.
    pub finish: Finish,
    /// The result in f64, for tests; for complex numbers, if all are real.
    pub reference: fn(&[f64]) -> f64,
}

const FLOATS_I64: &[DType] = union!(FLOATS, &[I64]);
const FLOATS_INTS: &[DType] = union!(FLOATS, INDEX);

/// Every reduction to one value, sorted by name.
pub const REDUCTIONS: &[Reduction] = &[
    Reduction {
        op: "All",
        types: &[Bool],
        wide: false,
        identity: Identity::One,
        map: Some("select(0u, 1u, x)"),
        combine: Combine::And,
        finish: Finish::Of("a != 0u"),
        reference: |x| f64::from(u8::from(x.iter().all(|v| *v != 0.0))),
    },
    Reduction {
        op: "Any",
        types: &[Bool],
        wide: false,
        identity: Identity::Zero,
        map: Some("select(0u, 1u, x)"),
        combine: Combine::Or,
        finish: Finish::Of("a != 0u"),
        reference: |x| f64::from(u8::from(x.iter().any(|v| *v != 0.0))),
    },
    Reduction {
        op: "EuclideanNorm",
        types: FLOATS,
        wide: false,
        identity: Identity::Zero,
        map: Some("x * x"),
        combine: Combine::Add,
        finish: Finish::Of("sqrt(a)"),
        reference: |x| x.iter().map(|v| v * v).sum::<f64>().sqrt(),
    },
    Reduction {
        op: "L2Loss",
        types: FLOATS,
        wide: false,
        identity: Identity::Zero,
        map: Some("x * x"),
        combine: Combine::Add,
        finish: Finish::Of("a * 0.5"),
        reference: |x| x.iter().map(|v| v * v).sum::<f64>() / 2.0,
    },
    Reduction {
        op: "Max",
        types: FLOATS_I64,
        wide: false,
        identity: Identity::Lowest,
        map: None,
        combine: Combine::Greater,
        finish: Finish::Accumulated,
        reference: |x| {
            x.iter().fold(f64::NEG_INFINITY, |a, b| if a.is_nan() || *b < a { a } else { *b })
        },
    },
    Reduction {
        op: "Mean",
        types: FLOATS,
        wide: false,
        identity: Identity::Zero,
        map: None,
        combine: Combine::Add,
        finish: Finish::Mean,
        reference: |x| x.iter().sum::<f64>() / x.len() as f64,
    },
    Reduction {
        op: "Min",
        types: FLOATS_I64,
        wide: false,
        identity: Identity::Highest,
        map: None,
        combine: Combine::Lesser,
        finish: Finish::Accumulated,
        reference: |x| {
            x.iter().fold(f64::INFINITY, |a, b| if a.is_nan() || *b > a { a } else { *b })
        },
    },
    Reduction {
        op: "Prod",
        types: FLOATS_INTS,
        wide: false,
        identity: Identity::One,
        map: None,
        combine: Combine::Multiply,
        finish: Finish::Accumulated,
        reference: |x| x.iter().product(),
    },
    Reduction {
        op: "Sum",
        types: FLOATS_I64,
        wide: false,
        identity: Identity::Zero,
        map: None,
        combine: Combine::Add,
        finish: Finish::Accumulated,
        reference: |x| x.iter().sum(),
    },
];

/// The reductions of complex numbers. They differ from those of real numbers in their products.
/// Sorted by name.
pub const COMPLEX_REDUCTIONS: &[Reduction] = &[
    Reduction {
        op: "EuclideanNorm",
        types: COMPLEX,
        wide: false,
        identity: Identity::Zero,
        map: Some("vec2(x.x * x.x + x.y * x.y, 0.0)"),
        combine: Combine::Add,
        finish: Finish::Of("vec2(sqrt(a.x), a.y)"),
        reference: |x| x.iter().map(|v| v * v).sum::<f64>().sqrt(),
    },
    Reduction {
        op: "Mean",
        types: COMPLEX,
        wide: false,
        identity: Identity::Zero,
        map: None,
        combine: Combine::Add,
        finish: Finish::Mean,
        reference: |x| x.iter().sum::<f64>() / x.len() as f64,
    },
    Reduction {
        op: "Prod",
        types: COMPLEX,
        wide: false,
        identity: Identity::One,
        map: None,
        combine: Combine::MultiplyComplex,
        finish: Finish::Accumulated,
        reference: |x| x.iter().product(),
    },
    Reduction {
        op: "Sum",
        types: COMPLEX,
        wide: false,
        identity: Identity::Zero,
        map: None,
        combine: Combine::Add,
        finish: Finish::Accumulated,
        reference: |x| x.iter().sum(),
    },
];

impl Reduction {
    /// The row of `op`. Panics if there is none: all names are written in this crate.
    pub fn of(op: &str) -> &'static Self {
        REDUCTIONS.iter().find(|r| r.op == op).unwrap_or_else(|| panic!("no reduction {op}"))
    }

    /// The type in which elements of type `input` are accumulated.
    pub const fn accumulator(&self, input: DType) -> DType {
        match (self.wide, input.is_signed_integer()) {
            (true, true) => I64,
            (true, false) => U64,
            (false, _) => input.accumulator(),
        }
    }

    /// WGSL of the value that is accumulated for the element `x`.
    pub fn mapped(&self) -> &'static str {
        self.map.unwrap_or("x")
    }

    /// Whether the reduction of one element is that element. Then a reduction over some axes
    /// followed by one over the others gives the same result as a reduction over all of them.
    pub fn keeps_singles(&self) -> bool {
        self.types == [Bool]
            || (self.map.is_none() && matches!(self.finish, Finish::Accumulated | Finish::Mean))
    }
}

impl PartialEq for Reduction {
    fn eq(&self, other: &Self) -> bool {
        (self.op, self.types) == (other.op, other.types)
    }
}

impl Eq for Reduction {}

impl Identity {
    /// The low and high 32 bits of a bound of the type `dtype`, from which the WGSL of
    /// [`bound_text`] makes the accumulator's value; an f64 is made from an f32. A bound is also
    /// the result of an empty reduction.
    pub fn bits(self, dtype: DType) -> [u32; 2] {
        let wide = |v: i64| [v as u32, (v >> 32) as u32];
        match (self, dtype) {
            (Self::Lowest, F16 | BF16 | F32 | F64) => [f32::NEG_INFINITY.to_bits(), 0],
            (Self::Highest, F16 | BF16 | F32 | F64) => [f32::INFINITY.to_bits(), 0],
            (Self::Lowest, I64) => wide(i64::MIN),
            (Self::Highest, I64) => wide(i64::MAX),
            (Self::Lowest, I32) => [i32::MIN.cast_unsigned(), 0],
            (Self::Highest, I32) => [i32::MAX.cast_unsigned(), 0],
            (Self::Lowest, I16) => [i32::from(i16::MIN).cast_unsigned(), 0],
            (Self::Highest, I16) => [i32::from(i16::MAX).cast_unsigned(), 0],
            (Self::Lowest, I8) => [i32::from(i8::MIN).cast_unsigned(), 0],
            (Self::Highest, I8) => [i32::from(i8::MAX).cast_unsigned(), 0],
            (Self::Highest, _) => [u32::MAX, u32::MAX],
            _ => [0, 0],
        }
    }
}

/// WGSL of a bound in an accumulator's type, from the parameters `BOUND_low` and `BOUND_high`. naga
/// extends the sign of a u32 that becomes an i64, hence the mask.
pub fn bound_text(accumulator: DType, bound: &str) -> String {
    match accumulator {
        I64 => format!("(i64({bound}_high) << 32u) | (i64({bound}_low) & 0xffffffffli)"),
        U64 => format!("(u64({bound}_high) << 32u) | (u64({bound}_low) & 0xfffffffflu)"),
        I32 => format!("bitcast<i32>({bound}_low)"),
        U32 => format!("{bound}_low"),
        F64 => format!("f64(bitcast<f32>({bound}_low))"),
        _ => format!("bitcast<f32>({bound}_low)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_name_types_once() {
        assert!(REDUCTIONS.is_sorted_by(|a, b| a.op < b.op));
        for row in REDUCTIONS {
            let mut types = row.types.to_vec();
            types.sort();
            types.dedup();
            assert_eq!(types.len(), row.types.len(), "{}", row.op);
        }
    }

    #[test]
    fn references_start_from_the_identity() {
        let empty = |op| (Reduction::of(op).reference)(&[]);
        assert_eq!((empty("Sum"), empty("Prod"), empty("All"), empty("Any")), (0.0, 1.0, 1.0, 0.0));
        assert_eq!((empty("Max"), empty("Min")), (f64::NEG_INFINITY, f64::INFINITY));
        assert!(empty("Mean").is_nan());
        assert!((Reduction::of("Max").reference)(&[1.0, f64::NAN, 2.0]).is_nan());
    }
}
