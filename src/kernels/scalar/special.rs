//! Bessel functions, integrals without closed form and their kin. What they are at poles and infinities follows TensorFlow.

use super::row::Reference::*;
use super::row::{Input, Row, Shapes, binary, case, input, unary};
use super::{gamma_reference, special_reference as reference};
use crate::dtype::DType::{self, *};

/// Types of the Bessel functions, computed in f32.
const HALF: &[DType] = &[F16, F32];

/// `op(x)` in `HALF`.
macro_rules! bessel {
    ($op:literal, $wgsl:literal, $reference:path, $ulps:literal, $near_zero:literal, $high:literal) => {
        unary(
            $op,
            &[case(HALF, $wgsl, Float1($reference))
                .lib(&["bessel"])
                .ulps($ulps)
                .near_zero($near_zero)
                .domain(0.0, $high)],
        )
    };
}

/// `op(x)` in f32.
macro_rules! integral {
    ($op:literal, $wgsl:literal, $reference:path, $ulps:literal, $near_zero:literal, $high:literal) => {
        unary(
            $op,
            &[case(&[F32], $wgsl, Float1($reference))
                .lib(&["integrals"])
                .ulps($ulps)
                .near_zero($near_zero)
                .domain(0.0, $high)],
        )
    };
}

const A_X: &[Input] = &[input("a"), input("x")];
const X_Q: &[Input] = &[input("x"), input("q")];
const A_B_X: &[Input] = &[input("a"), input("b"), input("x")];
const ALPHA_SAMPLE: &[Input] = &[input("alpha"), input("sample")];

/// A function of two numbers in f32.
macro_rules! gamma {
    ($op:literal, $inputs:ident, $lib:literal, $wgsl:literal, $reference:path, $ulps:literal, $near_zero:literal, $domain:expr) => {
        binary(
            $op,
            &[case(&[F32], $wgsl, Float2($reference))
                .lib(&[$lib])
                .ulps($ulps)
                .near_zero($near_zero)
                .domain($domain.0, $domain.1)
                .narrow()],
        )
        .of($inputs)
    };
}

/// The rows, sorted by op.
pub(super) const ROWS: &[Row] = &[
    bessel!("BesselI0", "bessel_i0_f32(x)", reference::i0, 8, 0.0, 20.0),
    bessel!("BesselI0e", "bessel_i0e_f32(x)", reference::i0e, 8, 0.0, 20.0),
    bessel!("BesselI1", "bessel_i1_f32(x)", reference::i1, 8, 0.0, 20.0),
    bessel!("BesselI1e", "bessel_i1e_f32(x)", reference::i1e, 8, 0.0, 20.0),
    bessel!("BesselJ0", "bessel_j0_f32(x)", reference::j0, 8, 3e-7, 60.0),
    bessel!("BesselJ1", "bessel_j1_f32(x)", reference::j1, 8, 3e-7, 60.0),
    bessel!("BesselK0", "bessel_k0_f32(x)", reference::k0, 8, 0.0, 20.0),
    bessel!("BesselK0e", "bessel_k0e_f32(x)", reference::k0e, 8, 0.0, 20.0),
    bessel!("BesselK1", "bessel_k1_f32(x)", reference::k1, 8, 0.0, 20.0),
    bessel!("BesselK1e", "bessel_k1e_f32(x)", reference::k1e, 8, 0.0, 20.0),
    bessel!("BesselY0", "bessel_y0_f32(x)", reference::y0, 8, 3e-7, 60.0),
    bessel!("BesselY1", "bessel_y1_f32(x)", reference::y1, 8, 3e-7, 60.0),
    binary(
        "Betainc",
        &[case(&[F32], "betainc_f32(a, b, x)", Float3(gamma_reference::betainc))
            .lib(&["incomplete_beta"])
            .ulps(150)
            .near_zero(3e-7)
            .domain(0.0, 1.0)
            .narrow()],
    )
    .of(A_B_X)
    .shapes(Shapes::SameOrScalar),
    integral!("Dawsn", "dawsn_f32(x)", reference::dawsn, 8, 0.0, 10.0),
    integral!("Expint", "expint_f32(x)", reference::expint, 8, 3e-7, 50.0),
    integral!("FresnelCos", "fresnel_cos_f32(x)", reference::fresnel_cos, 8, 0.0, 6.0),
    integral!("FresnelSin", "fresnel_sin_f32(x)", reference::fresnel_sin, 8, 0.0, 6.0),
    gamma!("Igamma", A_X, "incomplete_gamma", "igamma_f32(a, x)", gamma_reference::igamma, 200, 0.0, (0.0, 30.0)),
    gamma!("IgammaGradA", A_X, "incomplete_gamma", "igamma_grad_a_f32(a, x)", gamma_reference::igamma_grad_a, 100, 0.0, (0.0, 30.0)),
    gamma!("Igammac", A_X, "incomplete_gamma", "igammac_f32(a, x)", gamma_reference::igammac, 100, 0.0, (0.0, 30.0)),
    gamma!("Polygamma", A_X, "zeta", "polygamma_f32(a, x)", gamma_reference::polygamma_f32, 100, 0.0, (0.0, 10.0)),
    gamma!("RandomGammaGrad", ALPHA_SAMPLE, "incomplete_gamma", "random_gamma_grad_f32(alpha, sample)", gamma_reference::random_gamma_grad, 100, 0.0, (0.0, 30.0)),
    integral!("Spence", "spence_f32(x)", reference::spence, 8, 0.0, 4.0),
    gamma!("Zeta", X_Q, "zeta", "zeta_f32(x, q)", gamma_reference::zeta, 100, 0.0, (1.0, 20.0)),
];
