//! Bessel functions, integrals without closed form and their kin. What they are at poles and infinities follows TensorFlow.

use super::row::Reference::*;
use super::row::{Row, case, unary};
use super::special_reference as reference;
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
    integral!("Dawsn", "dawsn_f32(x)", reference::dawsn, 8, 0.0, 10.0),
    integral!("Expint", "expint_f32(x)", reference::expint, 8, 3e-7, 50.0),
    integral!("FresnelCos", "fresnel_cos_f32(x)", reference::fresnel_cos, 8, 0.0, 6.0),
    integral!("FresnelSin", "fresnel_sin_f32(x)", reference::fresnel_sin, 8, 0.0, 6.0),
    integral!("Spence", "spence_f32(x)", reference::spence, 8, 0.0, 4.0),
];
