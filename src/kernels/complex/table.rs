//! The elementwise ops of complex numbers: rows like those of `scalar`, run by the same program.
//!
//! TensorFlow's CPU kernels divide by zero and by infinity in two ways: in whole vectors the result
//! is NaN, in the remaining elements it follows C's Annex G. Its GPU kernels follow Annex G
//! throughout, and so do these rows.

use super::reference as r;
use crate::dtype::DType::*;
use crate::dtype::types::COMPLEX;
use crate::kernels::scalar::row::Reference::Complex;
use crate::kernels::scalar::row::{self, Case, Input, Row, Shapes, binary, case, input, unary};

/// A definition by the function libraries for complex numbers, whose functions' names end in the
/// type of a part.
const fn function(wgsl: &'static str, reference: fn(&[row::Complex]) -> row::Complex) -> Case {
    case(COMPLEX, wgsl, Complex(reference)).ulps(8)
}

const ADD: &[Case] = &[case(COMPLEX, "x + y", Complex(|v| r::add(v[0], v[1])))];
const MUL: &[Case] = &[case(
    COMPLEX,
    "vec2(x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x)",
    Complex(|v| r::mul(v[0], v[1])),
)
.ulps(2)];
const INVERSE_GRADIENT: &[Case] = &[function(
    "select(-complex_mul_{R}(complex_mul_{R}(vec2(y.x, -y.y), dy), vec2(y.x, -y.y)), {T}(), \
         all(dy == {T}()))",
    |v| {
        let product = r::mul(r::mul(r::conj(v[0]), v[1]), r::conj(v[0]));
        unless_zero(v[1], [-product[0], -product[1]])
    },
)];
const DIV: &[Case] = &[function("complex_div_{R}(x, y)", |v| r::div(v[0], v[1]))];
const INVERSE: &[Case] = &[function("complex_inverse_{R}(x)", |v| r::div([1.0, 0.0], v[0]))];
const EQUAL: &[Case] =
    &[case(COMPLEX, "x.x == y.x && x.y == y.y", Complex(|v| truth(v[0] == v[1])))];
const NOT_EQUAL: &[Case] =
    &[case(COMPLEX, "!(x.x == y.x && x.y == y.y)", Complex(|v| truth(v[0] != v[1])))];
const SELECT: &[Case] = &[case(
    COMPLEX,
    "select(e, t, condition)",
    Complex(|v| if v[0][0] != 0.0 { v[1] } else { v[2] }),
)];
const CONDITION: &[Input] =
    &[Input { name: "condition", dtype: Some(Bool) }, input("t"), input("e")];
const GRADIENT: &[Input] = &[input("y"), input("dy")];
const PARTS: &[Input] = &[input("real"), input("imag")];

fn truth(holds: bool) -> row::Complex {
    [f64::from(u8::from(holds)), 0.0]
}

/// `value`, or 0 where `z` is 0.
fn unless_zero(z: row::Complex, value: row::Complex) -> row::Complex {
    if z == [0.0, 0.0] { z } else { value }
}

/// Every row, sorted by op.
pub const ROWS: &[Row] = &[
    binary("Add", ADD),
    binary("AddV2", ADD),
    unary("Angle", &[function("atan2_{R}(x.y, x.x)", |v| [v[0][1].atan2(v[0][0]), 0.0])])
        .gives_part(),
    binary("Complex", &[case(&[F32, F64], "vec2(real, imag)", Complex(|v| [v[0][0], v[1][0]]))])
        .of(PARTS)
        .gives_complex(),
    unary("ComplexAbs", &[function("complex_abs_{R}(x)", |v| [r::abs(v[0]), 0.0])]).gives_part(),
    unary("Conj", &[case(COMPLEX, "vec2(x.x, -x.y)", Complex(|v| r::conj(v[0])))]),
    unary("Cos", &[function("complex_cos_{R}(x)", |v| r::cos(v[0]))]),
    unary("Cosh", &[function("complex_cosh_{R}(x)", |v| r::cosh(v[0]))]),
    binary("Div", DIV),
    binary(
        "DivNoNan",
        &[function("select(complex_div_{R}(x, y), {T}(), all(y == {T}()))", |v| {
            unless_zero(v[1], r::div(v[0], v[1]))
        })],
    ),
    binary("Equal", EQUAL).test().shapes(Shapes::BroadcastOr(false)),
    unary("Exp", &[function("complex_exp_{R}(x)", |v| r::exp(v[0]))]),
    unary("Imag", &[case(COMPLEX, "x.y", Complex(|v| [v[0][1], 0.0]))]).gives_part(),
    unary("Inv", INVERSE),
    binary("InvGrad", INVERSE_GRADIENT).of(GRADIENT).shapes(Shapes::Same),
    binary("Mul", MUL),
    binary(
        "MulNoNan",
        &[function("select(complex_mul_{R}(x, y), {T}(), all(y == {T}()))", |v| {
            unless_zero(v[1], r::mul(v[0], v[1]))
        })],
    ),
    unary("Neg", &[case(COMPLEX, "-x", Complex(|v| [-v[0][0], -v[0][1]]))]),
    binary("NotEqual", NOT_EQUAL).test().shapes(Shapes::BroadcastOr(true)),
    binary(
        "Pow",
        // 0 to the power of 0 is NaN, as in C. An exponent's error grows with it.
        &[function("complex_exp_{R}(complex_mul_{R}(y, complex_log_{R}(x)))", |v| {
            r::exp(r::mul(v[1], r::log(v[0])))
        })
        .ulps(512)],
    ),
    unary("Real", &[case(COMPLEX, "x.x", Complex(|v| [v[0][0], 0.0]))]).gives_part(),
    binary("RealDiv", DIV),
    unary("Reciprocal", INVERSE),
    binary("ReciprocalGrad", INVERSE_GRADIENT).of(GRADIENT).shapes(Shapes::Same),
    binary("Select", SELECT).of(CONDITION).shapes(Shapes::Select),
    binary("SelectV2", SELECT).of(CONDITION),
    unary("Sign", &[function("complex_sign_{R}(x)", |v| r::sign(v[0]))]),
    unary("Sin", &[function("complex_sin_{R}(x)", |v| r::sin(v[0]))]),
    unary("Sinh", &[function("complex_sinh_{R}(x)", |v| r::sinh(v[0]))]),
    unary(
        "Square",
        &[case(
            COMPLEX,
            "vec2(x.x * x.x - x.y * x.y, x.x * x.y + x.y * x.x)",
            Complex(|v| r::mul(v[0], v[0])),
        )
        .ulps(2)],
    ),
    binary("Sub", &[case(COMPLEX, "x - y", Complex(|v| r::sub(v[0], v[1])))]),
    unary("Tan", &[function("complex_tan_{R}(x)", |v| r::tan(v[0]))]),
    binary(
        "Xdivy",
        &[function("select(complex_div_{R}(x, y), {T}(), all(x == {T}()))", |v| {
            unless_zero(v[0], r::div(v[0], v[1]))
        })],
    ),
    binary(
        "Xlog1py",
        &[function(
            "select(complex_mul_{R}(x, complex_log1p_{R}(y)), {T}(), all(x == {T}()))",
            |v| unless_zero(v[0], r::mul(v[0], r::log1p(v[1]))),
        )],
    ),
    binary(
        "Xlogy",
        &[function(
            "select(complex_mul_{R}(x, complex_log_{R}(y)), {T}(), all(x == {T}()))",
            |v| unless_zero(v[0], r::mul(v[0], r::log(v[1]))),
        )],
    ),
];
