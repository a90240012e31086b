//! Roots, exponentials, logarithms, trigonometry, activations and their gradients.
//!
//! Some references come from libm, since the platforms' own functions differ: mingw's sine is wrong
//! for large arguments.

use super::row::Reference::*;
use super::row::{Case, Input, Row, Shapes, binary, case, input, unary};
use crate::dtype::DType::*;
use crate::dtype::types::{FLOATS, FLOATS_BUT_F64};

/// The constants of Selu.
const SCALE: f64 = 1.050_700_987_355_480_5;
const SCALE_ALPHA: f64 = 1.758_099_340_847_376_6;

const Y_DY: &[Input] = &[input("y"), input("dy")];
const GRADIENTS_FEATURES: &[Input] = &[input("gradients"), input("features")];
const GRADIENTS_OUTPUTS: &[Input] = &[input("gradients"), input("outputs")];

const fn gradient(op: &'static str, inputs: &'static [Input], cases: &'static [Case]) -> Row {
    binary(op, cases).of(inputs).shapes(Shapes::Same)
}

/// 1 / x of integers: 0 except for 1 and -1; for 0, all bits set, as for `Div`.
const INVERSE: &str =
    "select(select({T}(0), x, x == {T}(1) || x == {T}(-1)), {T}(-1), x == {T}(0))";

fn inverse(x: i128) -> i128 {
    match x {
        0 => -1,
        1 | -1 => x,
        _ => 0,
    }
}

/// Gradients of roots and reciprocals are 0 where the incoming gradient `dy` is 0, also at 0.
fn of_gradient(dy: f64, value: f64) -> f64 {
    if dy == 0.0 { 0.0 } else { value }
}

fn relu(x: f64) -> f64 {
    if x <= 0.0 { 0.0 } else { x }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f64) -> f64 {
    if x.is_nan() { x } else { x.max(0.0) + (-x.abs()).exp().ln_1p() }
}

fn xlogy(x: f64, y: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x * y.ln() }
}

fn xlog1py(x: f64, y: f64) -> f64 {
    if x == 0.0 { 0.0 } else { x * libm::log1p(y) }
}

fn asinh(x: f64) -> f64 {
    if x.abs() > 1e9 && x.is_finite() {
        return (x.abs().ln() + std::f64::consts::LN_2).copysign(x);
    }
    if x.is_finite() { (x.abs() + x * x / (1.0 + x.hypot(1.0))).ln_1p().copysign(x) } else { x }
}

fn acosh(x: f64) -> f64 {
    if x < 1.0 {
        return f64::NAN;
    }
    if x > 1e9 {
        return x.ln() + std::f64::consts::LN_2;
    }
    let t = x - 1.0;
    (t + (2.0 * t + t * t).sqrt()).ln_1p()
}

fn atanh(x: f64) -> f64 {
    0.5 * (2.0 * x / (1.0 - x)).ln_1p()
}

fn atanh_odd(x: f64) -> f64 {
    atanh(x.abs()).copysign(x)
}

/// The rows of functions, sorted by op.
pub(super) const FUNCTIONS: &[Row] = &[
    unary("Acos", &[case(FLOATS, "acos_{T}(x)", Float1(f64::acos)).ulps(4).domain(-1.0, 1.0)]),
    unary("Acosh", &[case(FLOATS, "acosh_{T}(x)", Float1(acosh)).ulps(4).domain(1.0, 3.0)]),
    unary("Asin", &[case(FLOATS, "asin_{T}(x)", Float1(f64::asin)).ulps(4).domain(-1.0, 1.0)]),
    unary("Asinh", &[case(FLOATS, "asinh_{T}(x)", Float1(asinh)).ulps(4)]),
    unary("Atan", &[case(FLOATS, "atan_{T}(x)", Float1(f64::atan)).ulps(4)]),
    binary("Atan2", &[case(FLOATS, "atan2_{T}(y, x)", Float2(f64::atan2)).ulps(4)])
        .of(&[input("y"), input("x")]),
    unary("Atanh", &[case(FLOATS, "atanh_{T}(x)", Float1(atanh_odd)).ulps(4).domain(-1.0, 1.0)]),
    unary(
        "Cos",
        &[case(FLOATS, "cos_{T}(x)", Float1(libm::cos)).ulps(2).domain(-20000.0, 20000.0)],
    ),
    unary("Cosh", &[case(FLOATS, "cosh_{T}(x)", Float1(f64::cosh)).ulps(4).domain(-90.0, 90.0)]),
    unary("Exp", &[case(FLOATS, "exp_{T}(x)", Float1(libm::exp)).ulps(2).domain(-90.0, 90.0)]),
    unary("Expm1", &[case(FLOATS, "expm1_{T}(x)", Float1(f64::exp_m1)).ulps(2)]),
    unary(
        "Inv",
        &[
            case(FLOATS, "1.0 / x", Float1(|x| 1.0 / x)).ulps(3),
            case(&[I64], INVERSE, Int1(inverse)),
        ],
    ),
    unary("Log", &[case(FLOATS, "log_{T}(x)", Float1(f64::ln)).ulps(2).domain(0.0, 3.0)]),
    unary("Log1p", &[case(FLOATS, "log1p_{T}(x)", Float1(f64::ln_1p)).ulps(3).domain(-1.0, 3.0)]),
    unary(
        "Reciprocal",
        &[
            case(FLOATS, "1.0 / x", Float1(|x| 1.0 / x)).ulps(3),
            case(&[I64], INVERSE, Int1(inverse)),
        ],
    ),
    unary(
        "Rsqrt",
        &[
            case(FLOATS_BUT_F64, "inverseSqrt(x)", Float1(|x| 1.0 / x.sqrt())).ulps(2),
            case(&[F64], "1.0 / sqrt(x)", Float1(|x| 1.0 / x.sqrt())).ulps(2),
        ],
    ),
    unary(
        "Sin",
        &[case(FLOATS, "sin_{T}(x)", Float1(libm::sin)).ulps(2).domain(-20000.0, 20000.0)],
    ),
    unary("Sinh", &[case(FLOATS, "sinh_{T}(x)", Float1(f64::sinh)).ulps(4).domain(-90.0, 90.0)]),
    unary("Sqrt", &[case(FLOATS, "sqrt(x)", Float1(f64::sqrt)).ulps(4).ulps64(1)]),
    unary("Tan", &[case(FLOATS, "tan_{T}(x)", Float1(f64::tan)).ulps(4).domain(-20000.0, 20000.0)]),
    unary("Tanh", &[case(FLOATS, "tanh_{T}(x)", Float1(f64::tanh)).ulps(4)]),
    binary(
        "Xlog1py",
        &[case(FLOATS, "select(x * log1p_{T}(y), 0.0, x == 0.0)", Float2(xlog1py)).ulps(3)],
    ),
    binary(
        "Xlogy",
        &[case(FLOATS, "select(x * log_{T}(y), 0.0, x == 0.0)", Float2(xlogy)).ulps(3)],
    ),
];

/// The rows of activations and gradients, sorted by op.
pub(super) const ACTIVATIONS: &[Row] = &[
    unary(
        "Elu",
        &[case(
            FLOATS,
            "select(x, expm1_{T}(x), x < 0.0)",
            Float1(|x| if x < 0.0 { x.exp_m1() } else { x }),
        )
        .ulps(2)],
    ),
    gradient(
        "EluGrad",
        GRADIENTS_OUTPUTS,
        &[
            case(
                FLOATS_BUT_F64,
                "select(gradients, gradients * (outputs + 1.0), outputs < 0.0)",
                Float2(|g, y| if y < 0.0 { g * (f64::from((y + 1.0) as f32)) } else { g }),
            )
            .ulps(1),
            case(
                &[F64],
                "select(gradients, gradients * (outputs + 1.0), outputs < 0.0)",
                Float2(|g, y| if y < 0.0 { g * (y + 1.0) } else { g }),
            )
            .ulps(1),
        ],
    ),
    gradient(
        "InvGrad",
        Y_DY,
        &[case(
            FLOATS,
            "select(-dy * y * y, 0.0, dy == 0.0)",
            Float2(|y, dy| of_gradient(dy, -dy * y * y)),
        )
        .ulps(2)
        .narrow()],
    ),
    unary(
        "LeakyRelu",
        &[case(
            FLOATS,
            "select(x * alpha, x, x > 0.0)",
            Float2(|x, alpha| if x > 0.0 { x } else { x * alpha }),
        )],
    )
    .attr("alpha"),
    gradient(
        "LeakyReluGrad",
        GRADIENTS_FEATURES,
        &[case(
            FLOATS,
            "select(gradients * alpha, gradients, features > 0.0)",
            Float3(|g, x, alpha| if x > 0.0 { g } else { g * alpha }),
        )],
    )
    .attr("alpha"),
    gradient(
        "ReciprocalGrad",
        Y_DY,
        &[case(
            FLOATS,
            "select(-dy * y * y, 0.0, dy == 0.0)",
            Float2(|y, dy| of_gradient(dy, -dy * y * y)),
        )
        .ulps(2)
        .narrow()],
    ),
    unary(
        "Relu",
        &[
            case(FLOATS, "max_{T}(x, 0.0)", Float1(relu)),
            case(&[I8, I16, I64], "max(x, {T}(0))", Int1(|x| x.max(0))),
            case(&[U8, U16, U32, U64], "x", Int1(|x| x)),
        ],
    )
    .moves(0b1),
    unary(
        "Relu6",
        &[case(
            FLOATS,
            "min_{T}(max_{T}(x, 0.0), 6.0)",
            Float1(|x| if x > 6.0 { 6.0 } else { relu(x) }),
        )],
    )
    .moves(0b1),
    gradient(
        "Relu6Grad",
        GRADIENTS_FEATURES,
        &[case(
            FLOATS,
            "select(0.0, gradients, features > 0.0 && features < 6.0)",
            Float2(|g, x| if x > 0.0 && x < 6.0 { g } else { 0.0 }),
        )],
    )
    .moves(0b1),
    gradient(
        "ReluGrad",
        GRADIENTS_FEATURES,
        &[case(
            FLOATS,
            "select(0.0, gradients, features > 0.0)",
            Float2(|g, x| if x > 0.0 { g } else { 0.0 }),
        )],
    )
    .moves(0b1),
    gradient(
        "RsqrtGrad",
        Y_DY,
        &[case(
            FLOATS,
            "select(-0.5 * (dy * y) * (y * y), 0.0, dy == 0.0)",
            Float2(|y, dy| of_gradient(dy, -0.5 * (dy * y) * (y * y))),
        )
        .ulps(3)
        .narrow()],
    ),
    unary(
        "Selu",
        &[case(
            FLOATS,
            "select(1.0507009873554805 * x, 1.7580993408473766 * expm1_{T}(x), x < 0.0)",
            Float1(|x| if x < 0.0 { SCALE_ALPHA * x.exp_m1() } else { SCALE * x }),
        )
        .ulps(3)],
    ),
    gradient(
        "SeluGrad",
        GRADIENTS_OUTPUTS,
        &[
            case(
                FLOATS_BUT_F64,
                "gradients * select(1.05070099, outputs + 1.75809934, outputs < 0.0 || \
                 is_nan_f32(outputs))",
                Float2(|g, y| {
                    g * if y >= 0.0 { SCALE } else { f64::from(y as f32 + SCALE_ALPHA as f32) }
                }),
            )
            .ulps(2),
            case(
                &[F64],
                "gradients * select(1.0507009873554805, outputs + 1.7580993408473766, outputs < \
                 0.0 || is_nan_f64(outputs))",
                Float2(|g, y| g * if y >= 0.0 { SCALE } else { y + SCALE_ALPHA }),
            )
            .ulps(2),
        ],
    ),
    unary(
        "Sigmoid",
        &[case(FLOATS, "sigmoid_{T}(x)", Float1(sigmoid)).ulps(4).domain(-90.0, 30.0)],
    ),
    gradient(
        "SigmoidGrad",
        Y_DY,
        &[
            case(
                FLOATS_BUT_F64,
                "dy * y * (1.0 - y)",
                Float2(|y, dy| dy * y * f64::from((1.0 - y) as f32)),
            )
            .ulps(3)
            .narrow(),
            case(&[F64], "dy * y * (1.0 - y)", Float2(|y, dy| dy * y * (1.0 - y))).ulps(3).narrow(),
        ],
    ),
    unary(
        "Softplus",
        &[case(FLOATS, "softplus_{T}(x)", Float1(softplus)).ulps(4).domain(-90.0, 30.0)],
    ),
    gradient(
        "SoftplusGrad",
        GRADIENTS_FEATURES,
        &[
            case(
                FLOATS_BUT_F64,
                "gradients / (1.0 + exp_f32(-features))",
                Float2(|g, x| g / (1.0 + f64::from((-x).exp() as f32))),
            )
            .ulps(4),
            case(
                &[F64],
                "gradients / (1.0 + exp_f64(-features))",
                Float2(|g, x| g / (1.0 + (-x).exp())),
            )
            .ulps(4),
        ],
    ),
    unary(
        "Softsign",
        &[case(FLOATS, "x / (1.0 + abs(x))", Float1(|x| x / (1.0 + x.abs()))).ulps(4)],
    ),
    gradient(
        "SoftsignGrad",
        GRADIENTS_FEATURES,
        &[
            case(
                FLOATS_BUT_F64,
                "gradients / ((1.0 + abs(features)) * (1.0 + abs(features)))",
                Float2(|g, x| {
                    let d = (1.0 + x.abs()) as f32;
                    g / f64::from(d * d)
                }),
            )
            .ulps(4),
            case(
                &[F64],
                "gradients / ((1.0 + abs(features)) * (1.0 + abs(features)))",
                Float2(|g, x| g / ((1.0 + x.abs()) * (1.0 + x.abs()))),
            )
            .ulps(4),
        ],
    ),
    gradient(
        "SqrtGrad",
        Y_DY,
        // Half of a small dy may be subnormal; a quotient of a large one may overflow.
        &[case(
            FLOATS,
            "select(select(0.5 * dy / y, 0.5 * (dy / y), abs(dy) < 1.0), 0.0, dy == 0.0)",
            Float2(|y, dy| of_gradient(dy, 0.5 * dy / y)),
        )
        .ulps(3)],
    ),
    gradient(
        "TanhGrad",
        Y_DY,
        &[
            case(
                FLOATS_BUT_F64,
                "dy * (1.0 - y * y)",
                Float2(|y, dy| dy * (1.0 - f64::from((y * y) as f32))),
            )
            .ulps(3)
            .domain(-1.0, 1.0)
            .narrow(),
            case(&[F64], "dy * (1.0 - y * y)", Float2(|y, dy| dy * (1.0 - y * y)))
                .ulps(3)
                .domain(-1.0, 1.0)
                .narrow(),
        ],
    ),
];
