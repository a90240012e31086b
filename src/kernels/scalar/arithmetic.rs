//! Sums, products, quotients, signs, rounding, comparisons, logic and bits.
//!
//! Integer division by zero gives -1 (all bits set), with the dividend as the remainder, as XLA
//! defines it; TensorFlow's CPU kernels raise an error there, its GPU kernels do not. `Pow` of an
//! integer to a negative power gives the truncated quotient.

use super::row::Reference::*;
use super::row::{Case, Input, Row, Shapes, binary, case, input, unary};
use crate::dtype::DType::{self, *};
use crate::dtype::types::{F32_F64, FLOATS, INTS, INTS_BUT_I32, SIGNED, SIGNED_BUT_I32, UNSIGNED};

const TRUNCATED_QUOTIENT: &str = "select(x / y, {T}(-1), y == {T}(0))";
const UNSIGNED_QUOTIENT: &str = "select(x / y, ~{T}(0), y == {T}(0))";
const FLOOR_QUOTIENT: &str = "select(x / y - select({T}(0), {T}(1), (x % y != {T}(0)) && ((x < \
                              {T}(0)) != (y < {T}(0)))), {T}(-1), y == {T}(0))";
const REMAINDER: &str = "select(x % y, x, y == {T}(0))";
const FLOOR_REMAINDER: &str = "select(x % y + select({T}(0), y, (x % y != {T}(0)) && ((x < \
                               {T}(0)) != (y < {T}(0)))), x, y == {T}(0))";

/// The half types round the quotient before they drop its fraction, as TensorFlow does.
const F16_FLOOR: &str = "floor_of_quotient_f32(unpack2x16float(f16_bits(div_f32(x, y))).x)";
const F16_TRUNC: &str = "trunc(unpack2x16float(f16_bits(div_f32(x, y))).x)";
const BF16_FLOOR: &str = "floor_of_quotient_f32(bitcast<f32>(bf16_bits(div_f32(x, y)) << 16u))";
const BF16_TRUNC: &str = "trunc(bitcast<f32>(bf16_bits(div_f32(x, y)) << 16u))";

fn quotient(x: i128, y: i128) -> i128 {
    if y == 0 { -1 } else { x / y }
}

fn remainder(x: i128, y: i128) -> i128 {
    if y == 0 { x } else { x % y }
}

fn floor_quotient(x: i128, y: i128) -> i128 {
    if y == 0 { -1 } else { (x - floor_remainder(x, y)) / y }
}

fn floor_remainder(x: i128, y: i128) -> i128 {
    match (y, remainder(x, y)) {
        (0, r) => r,
        (y, r) if r != 0 && (r < 0) != (y < 0) => r + y,
        (_, r) => r,
    }
}

fn floor_mod(x: f64, y: f64) -> f64 {
    let r = x % y;
    if r != 0.0 && (r < 0.0) != (y < 0.0) { r + y } else { r }
}

/// The quotient that float32 division gives, on which `FloorDiv` and `TruncateDiv` are based.
fn float_quotient(x: f64, y: f64) -> f64 {
    f64::from(x as f32 / y as f32)
}

fn f16_quotient(x: f64, y: f64) -> f64 {
    half::f16::from_f64(float_quotient(x, y)).to_f64()
}

fn bf16_quotient(x: f64, y: f64) -> f64 {
    half::bf16::from_f64(float_quotient(x, y)).to_f64()
}

fn max(x: f64, y: f64) -> f64 {
    if x.is_nan() || y.is_nan() { f64::NAN } else { x.max(y) }
}

fn min(x: f64, y: f64) -> f64 {
    if x.is_nan() || y.is_nan() { f64::NAN } else { x.min(y) }
}

/// The lower bound is applied first, and bounds that are NaN do not count.
fn clip(t: f64, low: f64, high: f64) -> f64 {
    let below = if high < t { high } else { t };
    if below < low { low } else { below }
}

fn sign(x: f64) -> f64 {
    if x == 0.0 || x.is_nan() { x.abs() } else { x.signum() }
}

fn int_pow(dtype: DType, x: i128, y: i128) -> i128 {
    if y < 0 {
        return match x {
            1 => 1,
            -1 => 1 - 2 * (y & 1),
            _ => 0,
        };
    }
    let modulus = 1i128 << (8 * dtype.size());
    let (mut power, mut base, mut rest) = (1u128, x.rem_euclid(modulus).cast_unsigned(), y);
    while rest != 0 {
        if rest & 1 == 1 {
            power = power * base % modulus.cast_unsigned();
        }
        // The product is below 2^128, since both factors are below 2^64.
        base = base * base % modulus.cast_unsigned();
        rest >>= 1;
    }
    power.cast_signed()
}

/// C's pow. Rust's is the platform's, with the same special values.
fn pow(x: f64, y: f64) -> f64 {
    x.powf(y)
}

fn shift(dtype: DType, y: i128) -> i128 {
    y.clamp(0, 8 * dtype.size() as i128 - 1)
}

fn next_after(x: f64, y: f64) -> f64 {
    let (from, to) = (x as f32, y as f32);
    let next = if from.is_nan() || to.is_nan() {
        f32::NAN
    } else if from == to {
        to
    } else if from < to {
        from.next_up()
    } else {
        from.next_down()
    };
    f64::from(next)
}

fn next_after_wide(x: f64, y: f64) -> f64 {
    if x.is_nan() || y.is_nan() {
        f64::NAN
    } else if x == y {
        y
    } else if x < y {
        x.next_up()
    } else {
        x.next_down()
    }
}

const fn ones(dtype: DType, x: i128) -> i128 {
    (x & ((1 << (8 * dtype.size())) - 1)).count_ones() as i128
}

/// The rows, sorted by op.
pub(super) const ROWS: &[Row] = &[
    unary(
        "Abs",
        &[
            case(FLOATS, "abs(x)", Float1(f64::abs)),
            case(SIGNED_BUT_I32, "abs(x)", Int1(i128::abs)),
        ],
    )
    .moves(0b1),
    binary(
        "Add",
        &[
            case(FLOATS, "x + y", Float2(|x, y| x + y)),
            case(&[I8, I16, I64, U8], "x + y", Int2(|x, y| x + y)),
        ],
    ),
    binary(
        "AddV2",
        &[
            case(FLOATS, "x + y", Float2(|x, y| x + y)),
            case(INTS_BUT_I32, "x + y", Int2(|x, y| x + y)),
        ],
    ),
    binary(
        "ApproximateEqual",
        &[
            case(
                &[F32],
                "is_finite_f32(x - y) && abs(x - y) < tolerance",
                FloatTest3(|x, y, t| f64::from((x - y) as f32).abs() < t),
            ),
            case(
                &[F64],
                "is_finite_f64(x - y) && abs(x - y) < tolerance",
                FloatTest3(|x, y, t| (x - y).abs() < t),
            ),
        ],
    )
    .attr("tolerance")
    .shapes(Shapes::Same)
    .test(),
    binary("BitwiseAnd", &[case(INTS, "x & y", Int2(|x, y| x & y))]),
    binary("BitwiseOr", &[case(INTS, "x | y", Int2(|x, y| x | y))]),
    binary("BitwiseXor", &[case(INTS, "x ^ y", Int2(|x, y| x ^ y))]),
    unary("Ceil", &[case(FLOATS, "ceil(x)", Float1(f64::ceil))]).exact(),
    binary(
        "Div",
        &[
            case(FLOATS, "x / y", Float2(|x, y| x / y)).ulps(3),
            case(SIGNED_BUT_I32, TRUNCATED_QUOTIENT, Int2(quotient)),
            case(UNSIGNED, UNSIGNED_QUOTIENT, Int2(quotient)),
        ],
    ),
    binary(
        "DivNoNan",
        &[case(
            FLOATS,
            "select(x / y, 0.0, y == 0.0)",
            Float2(|x, y| if y == 0.0 { 0.0 } else { x / y }),
        )
        .ulps(3)],
    ),
    binary(
        "Equal",
        &[
            case(FLOATS, "x == y", FloatTest2(|x, y| x == y)),
            case(INTS_BUT_I32, "x == y", IntTest2(|x, y| x == y)),
            case(&[Bool], "x == y", IntTest2(|x, y| x == y)),
        ],
    )
    .test()
    .shapes(Shapes::BroadcastOr(false)),
    unary("Floor", &[case(FLOATS, "floor(x)", Float1(f64::floor))]).exact(),
    binary(
        "FloorDiv",
        &[
            case(
                &[F32],
                "floor_of_quotient_f32(div_f32(x, y))",
                Float2(|x, y| float_quotient(x, y).floor()),
            ),
            case(&[F64], "floor(x / y)", Float2(|x, y| (x / y).floor())),
            case(&[F16], F16_FLOOR, Float2(|x, y| f16_quotient(x, y).floor())),
            case(&[BF16], BF16_FLOOR, Float2(|x, y| bf16_quotient(x, y).floor())),
            case(SIGNED_BUT_I32, FLOOR_QUOTIENT, Int2(floor_quotient)),
            case(UNSIGNED, UNSIGNED_QUOTIENT, Int2(floor_quotient)),
        ],
    ),
    binary(
        "FloorMod",
        &[
            case(FLOATS, "floor_mod_{T}(x, y)", Float2(floor_mod)),
            case(SIGNED_BUT_I32, FLOOR_REMAINDER, Int2(floor_remainder)),
            case(UNSIGNED, REMAINDER, Int2(floor_remainder)),
        ],
    ),
    binary(
        "Greater",
        &[
            case(FLOATS, "x > y", FloatTest2(|x, y| x > y)),
            case(INTS_BUT_I32, "x > y", IntTest2(|x, y| x > y)),
        ],
    )
    .test(),
    binary(
        "GreaterEqual",
        &[
            case(FLOATS, "x >= y", FloatTest2(|x, y| x >= y)),
            case(INTS_BUT_I32, "x >= y", IntTest2(|x, y| x >= y)),
        ],
    )
    .test(),
    unary("Invert", &[case(INTS, "~x", Int1(|x| !x))]),
    unary("IsFinite", &[case(FLOATS, "is_finite_{T}(x)", FloatTest1(f64::is_finite))]).test(),
    unary("IsInf", &[case(FLOATS, "is_inf_{T}(x)", FloatTest1(f64::is_infinite))]).test(),
    unary("IsNan", &[case(FLOATS, "is_nan_{T}(x)", FloatTest1(f64::is_nan))]).test(),
    binary(
        "LeftShift",
        &[
            case(
                SIGNED,
                "x << u32(min(max(y, {T}(0)), {T}({BITS} - 1)))",
                Typed2(|t, x, y| x << shift(t, y)),
            ),
            case(UNSIGNED, "x << u32(min(y, {T}({BITS} - 1)))", Typed2(|t, x, y| x << shift(t, y))),
        ],
    ),
    binary(
        "Less",
        &[
            case(FLOATS, "x < y", FloatTest2(|x, y| x < y)),
            case(INTS_BUT_I32, "x < y", IntTest2(|x, y| x < y)),
        ],
    )
    .test(),
    binary(
        "LessEqual",
        &[
            case(FLOATS, "x <= y", FloatTest2(|x, y| x <= y)),
            case(INTS_BUT_I32, "x <= y", IntTest2(|x, y| x <= y)),
        ],
    )
    .test(),
    binary("LogicalAnd", &[case(&[Bool], "x && y", Int2(|x, y| x & y))]),
    unary("LogicalNot", &[case(&[Bool], "!x", Int1(|x| 1 - x))]),
    binary("LogicalOr", &[case(&[Bool], "x || y", Int2(|x, y| x | y))]),
    binary(
        "Maximum",
        &[
            case(FLOATS, "max_{T}(x, y)", Float2(max)),
            case(INTS_BUT_I32, "max(x, y)", Int2(i128::max)),
        ],
    )
    .moves(0b11),
    binary(
        "Minimum",
        &[
            case(FLOATS, "min_{T}(x, y)", Float2(min)),
            case(INTS_BUT_I32, "min(x, y)", Int2(i128::min)),
        ],
    )
    .moves(0b11),
    binary(
        "Mod",
        &[
            case(F32_F64, "fmod_{T}(x, y)", Float2(|x, y| x % y)),
            case(&[I64], REMAINDER, Int2(remainder)),
        ],
    ),
    binary(
        "Mul",
        &[
            case(FLOATS, "x * y", Float2(|x, y| x * y)),
            case(INTS_BUT_I32, "x * y", Int2(i128::wrapping_mul)),
        ],
    ),
    binary(
        "MulNoNan",
        &[case(
            FLOATS,
            "select(x * y, 0.0, y == 0.0)",
            Float2(|x, y| if y == 0.0 { 0.0 } else { x * y }),
        )],
    ),
    unary("Neg", &[case(FLOATS, "-x", Float1(|x| -x)), case(SIGNED_BUT_I32, "-x", Int1(|x| -x))])
        .moves(0b1),
    binary(
        "NextAfter",
        &[
            case(&[F32], "next_after_f32(x, y)", Float2(next_after)),
            case(&[F64], "next_after_f64(x, y)", Float2(next_after_wide)),
        ],
    ),
    binary(
        "NotEqual",
        &[
            case(FLOATS, "!(x == y)", FloatTest2(|x, y| x != y)),
            case(INTS_BUT_I32, "x != y", IntTest2(|x, y| x != y)),
            case(&[Bool], "x != y", IntTest2(|x, y| x != y)),
        ],
    )
    .test()
    .shapes(Shapes::BroadcastOr(true)),
    unary(
        "PopulationCount",
        &[
            case(
                &[I8, I16],
                "countOneBits(extractBits(bitcast<u32>(x), 0u, {BITS}u))",
                Typed1(ones),
            ),
            case(&[U8, U16], "countOneBits(x)", Typed1(ones)),
            case(&[I32], "countOneBits(bitcast<u32>(x))", Typed1(ones)),
            case(
                &[I64],
                "countOneBits(u32(x & 0xffffffffli)) + countOneBits(u32((x >> 32u) & \
                 0xffffffffli))",
                Typed1(ones),
            ),
        ],
    )
    .gives(U8),
    binary(
        "Pow",
        &[
            case(FLOATS, "pow_{T}(x, y)", Float2(pow)).ulps(3),
            case(&[I8, I16], "pow_i32(x, y)", Typed2(int_pow)),
            case(&[I64], "pow_i64(x, y)", Typed2(int_pow)),
        ],
    ),
    binary("RealDiv", &[case(FLOATS, "x / y", Float2(|x, y| x / y)).ulps(3)]),
    binary(
        "RightShift",
        &[
            case(
                SIGNED,
                "x >> u32(min(max(y, {T}(0)), {T}({BITS} - 1)))",
                Typed2(|t, x, y| x >> shift(t, y)),
            ),
            case(UNSIGNED, "x >> u32(min(y, {T}({BITS} - 1)))", Typed2(|t, x, y| x >> shift(t, y))),
        ],
    ),
    unary(
        "Rint",
        &[
            case(&[F16, F32], "round(x)", Float1(f64::round_ties_even)),
            case(&[F64], "round_f64(x)", Float1(f64::round_ties_even)),
        ],
    )
    .exact(),
    unary(
        "Round",
        &[
            case(&[BF16, F16, F32], "round(x)", Float1(f64::round_ties_even)),
            case(&[F64], "round_f64(x)", Float1(f64::round_ties_even)),
            case(&[I32, I64], "x", Int1(|x| x)),
        ],
    )
    .exact(),
    unary(
        "Sign",
        &[
            case(FLOATS, "sign_{T}(x)", Float1(sign)),
            case(
                SIGNED_BUT_I32,
                "select(select({T}(0), {T}(1), x > {T}(0)), {T}(-1), x < {T}(0))",
                Int1(i128::signum),
            ),
        ],
    )
    .exact(),
    unary(
        "Square",
        &[
            case(FLOATS, "x * x", Float1(|x| x * x)),
            case(INTS_BUT_I32, "x * x", Int1(|x| x.wrapping_mul(x))),
        ],
    ),
    binary(
        "SquaredDifference",
        &[
            case(FLOATS, "(x - y) * (x - y)", Float2(|x, y| (x - y) * (x - y))).ulps(2),
            case(&[I64], "(x - y) * (x - y)", Int2(|x, y| (x - y).wrapping_mul(x - y))),
        ],
    ),
    binary(
        "Sub",
        &[
            case(FLOATS, "x - y", Float2(|x, y| x - y)),
            case(INTS_BUT_I32, "x - y", Int2(|x, y| x - y)),
        ],
    ),
    binary(
        "TruncateDiv",
        &[
            case(&[F32], "trunc(div_f32(x, y))", Float2(|x, y| float_quotient(x, y).trunc())),
            case(&[F64], "trunc_f64(x / y)", Float2(|x, y| (x / y).trunc())),
            case(&[F16], F16_TRUNC, Float2(|x, y| f16_quotient(x, y).trunc())),
            case(&[BF16], BF16_TRUNC, Float2(|x, y| bf16_quotient(x, y).trunc())),
            case(SIGNED_BUT_I32, TRUNCATED_QUOTIENT, Int2(quotient)),
            case(UNSIGNED, UNSIGNED_QUOTIENT, Int2(quotient)),
        ],
    ),
    binary(
        "TruncateMod",
        &[
            case(F32_F64, "fmod_{T}(x, y)", Float2(|x, y| x % y)),
            case(&[I64], REMAINDER, Int2(remainder)),
        ],
    ),
    binary(
        "Xdivy",
        &[case(
            FLOATS,
            "select(x / y, 0.0, x == 0.0)",
            Float2(|x, y| if x == 0.0 { 0.0 } else { x / y }),
        )
        .ulps(3)],
    ),
];

/// The rows of several inputs, sorted by op.
pub(super) const CHOICES: &[Row] = &[
    binary(
        "ClipByValue",
        &[
            case(FLOATS, "clip_{T}(t, low, high)", Float3(clip)),
            case(
                &[I8, I16, I64, U8, U16],
                "max(min(t, high), low)",
                Int3(|t, low, high| t.min(high).max(low)),
            ),
        ],
    )
    .moves(0b111)
    .of(&[input("t"), input("low"), input("high")])
    .shapes(Shapes::Bounds),
    binary("Select", SELECT).moves(0b110).of(CONDITION).shapes(Shapes::Select),
    binary("SelectV2", SELECT).moves(0b110).of(CONDITION),
];

const CONDITION: &[Input] =
    &[Input { name: "condition", dtype: Some(Bool) }, input("t"), input("e")];

const SELECT: &[Case] = &[
    case(
        FLOATS,
        "select(e, t, condition)",
        Float3(|condition, t, e| if condition != 0.0 { t } else { e }),
    ),
    case(
        INTS,
        "select(e, t, condition)",
        Int3(|condition, t, e| if condition != 0 { t } else { e }),
    ),
    case(
        &[Bool],
        "select(e, t, condition)",
        Int3(|condition, t, e| if condition != 0 { t } else { e }),
    ),
];
