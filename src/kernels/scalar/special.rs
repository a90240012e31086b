//! Bessel functions, integrals without closed form and related functions. Their values at poles and
//! infinities follow TensorFlow.

use super::row::Reference::*;
use super::row::{Input, Row, Shapes, binary, case, input, unary};
use super::{gamma_reference, special_reference as reference};
use crate::dtype::DType::*;
use crate::dtype::types::F32_F16;

/// `op(x)` in the types computed in f32, and in f64. Tolerances are in ulp and absolute.
macro_rules! function {
    ($op:literal, $types:expr, $wgsl:literal, $reference:path, $ulps:literal, $near_zero:literal,
        $high:literal) => {
        unary(
            $op,
            &[
                case($types, $wgsl, Float1($reference))
                    .ulps($ulps)
                    .near_zero($near_zero)
                    .domain(0.0, $high),
                case(&[F64], $wgsl, Float1($reference))
                    .ulps(40)
                    .near_zero(1e-8 * $near_zero)
                    .domain(0.0, $high),
            ],
        )
    };
}

const A_X: &[Input] = &[input("a"), input("x")];
const X_Q: &[Input] = &[input("x"), input("q")];
const A_B_X: &[Input] = &[input("a"), input("b"), input("x")];
const ALPHA_SAMPLE: &[Input] = &[input("alpha"), input("sample")];

/// A function of two numbers, in f32 and f64.
macro_rules! gamma {
    ($op:literal, $inputs:ident, $lib:literal, $wgsl:literal, $reference:path, $ulps:literal,
        $high:literal) => {
        gamma!($op, $inputs, $lib, $wgsl, $reference, $reference, $ulps, $high)
    };
    ($op:literal, $inputs:ident, $lib:literal, $wgsl:literal, $reference:path, $wide:path,
        $ulps:literal, $high:literal) => {
        binary(
            $op,
            &[
                case(&[F32], $wgsl, Float2($reference)).ulps($ulps).domain(0.0, $high).narrow(),
                case(&[F64], $wgsl, Float2($wide)).ulps(4000).domain(0.0, $high).narrow(),
            ],
        )
        .of($inputs)
    };
}

/// The rows, sorted by op.
pub(super) const ROWS: &[Row] = &[
    function!("BesselI0", F32_F16, "bessel_i0_{T}(x)", reference::i0, 8, 0.0, 20.0),
    function!("BesselI0e", F32_F16, "bessel_i0e_{T}(x)", reference::i0e, 8, 0.0, 20.0),
    function!("BesselI1", F32_F16, "bessel_i1_{T}(x)", reference::i1, 8, 0.0, 20.0),
    function!("BesselI1e", F32_F16, "bessel_i1e_{T}(x)", reference::i1e, 8, 0.0, 20.0),
    function!("BesselJ0", F32_F16, "bessel_j0_{T}(x)", reference::j0, 8, 3e-7, 60.0),
    function!("BesselJ1", F32_F16, "bessel_j1_{T}(x)", reference::j1, 8, 3e-7, 60.0),
    function!("BesselK0", F32_F16, "bessel_k0_{T}(x)", reference::k0, 8, 0.0, 20.0),
    function!("BesselK0e", F32_F16, "bessel_k0e_{T}(x)", reference::k0e, 8, 0.0, 20.0),
    function!("BesselK1", F32_F16, "bessel_k1_{T}(x)", reference::k1, 8, 0.0, 20.0),
    function!("BesselK1e", F32_F16, "bessel_k1e_{T}(x)", reference::k1e, 8, 0.0, 20.0),
    function!("BesselY0", F32_F16, "bessel_y0_{T}(x)", reference::y0, 8, 3e-7, 60.0),
    function!("BesselY1", F32_F16, "bessel_y1_{T}(x)", reference::y1, 8, 3e-7, 60.0),
    binary(
        "Betainc",
        &[
            case(&[F32], "betainc_{T}(a, b, x)", Float3(gamma_reference::betainc))
                .ulps(150)
                .near_zero(3e-7)
                .domain(0.0, 1.0)
                .narrow(),
            case(&[F64], "betainc_{T}(a, b, x)", Float3(gamma_reference::betainc))
                .ulps(10000)
                .near_zero(1e-14)
                .domain(0.0, 1.0)
                .narrow(),
        ],
    )
    .of(A_B_X)
    .shapes(Shapes::SameOrScalar),
    function!("Dawsn", &[F32], "dawsn_{T}(x)", reference::dawsn, 8, 0.0, 10.0),
    function!("Expint", &[F32], "expint_{T}(x)", reference::expint, 8, 3e-7, 50.0),
    function!("FresnelCos", &[F32], "fresnel_cos_{T}(x)", reference::fresnel_cos, 8, 0.0, 6.0),
    function!("FresnelSin", &[F32], "fresnel_sin_{T}(x)", reference::fresnel_sin, 8, 0.0, 6.0),
    gamma!(
        "Igamma",
        A_X,
        "incomplete_gamma",
        "igamma_{T}(a, x)",
        gamma_reference::igamma,
        200,
        30.0
    ),
    gamma!(
        "IgammaGradA",
        A_X,
        "incomplete_gamma",
        "igamma_grad_a_{T}(a, x)",
        gamma_reference::igamma_grad_a,
        250,
        30.0
    ),
    gamma!(
        "Igammac",
        A_X,
        "incomplete_gamma",
        "igammac_{T}(a, x)",
        gamma_reference::igammac,
        100,
        30.0
    ),
    gamma!(
        "Polygamma",
        A_X,
        "zeta",
        "polygamma_{T}(a, x)",
        gamma_reference::polygamma_f32,
        gamma_reference::polygamma_f64,
        100,
        10.0
    ),
    gamma!(
        "RandomGammaGrad",
        ALPHA_SAMPLE,
        "incomplete_gamma",
        "random_gamma_grad_{T}(alpha, sample)",
        gamma_reference::random_gamma_grad,
        100,
        30.0
    ),
    function!("Spence", &[F32], "spence_{T}(x)", reference::spence, 8, 0.0, 4.0),
    gamma!("Zeta", X_Q, "zeta", "zeta_{T}(x, q)", gamma_reference::zeta, 100, 20.0),
];
