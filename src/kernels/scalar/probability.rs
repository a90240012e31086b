//! The error function, the gamma function and related functions.

use super::row::Reference::*;
use super::row::{Row, case, unary};
use crate::dtype::DType::*;
use crate::dtype::types::FLOATS;

/// The inverse of erfc for 0 < q <= 1, by Newton's method on its logarithm.
fn erfc_inverse(q: f64) -> f64 {
    let mut y = (-(q * (2.0 - q)).ln()).max(0.0).sqrt();
    for _ in 0..60 {
        let value = libm::erfc(y);
        let slope = std::f64::consts::FRAC_2_SQRT_PI * (-y * y).exp() / value;
        let step = (value.ln() - q.ln()) / slope;
        y += step;
        if step.abs() <= 1e-16 * y.abs() {
            break;
        }
    }
    y
}

fn erfinv(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() || a > 1.0 {
        return f64::NAN;
    }
    if a == 1.0 {
        return x * f64::INFINITY;
    }
    if a < 0.1 {
        // Newton's method on erf itself keeps small arguments precise.
        let start = a / std::f64::consts::FRAC_2_SQRT_PI;
        let improve = |y: f64, _| {
            y - (libm::erf(y) - a) / (std::f64::consts::FRAC_2_SQRT_PI * (-y * y).exp())
        };
        return (0..8).fold(start, improve).copysign(x);
    }
    erfc_inverse(1.0 - a).copysign(x)
}

fn ndtri(p: f64) -> f64 {
    if p == 0.0 || p == 1.0 {
        return (p - 0.5) * f64::INFINITY;
    }
    if !(p > 0.0 && p < 1.0) {
        return f64::NAN;
    }
    let sign = if p < 0.5 { -1.0 } else { 1.0 };
    let centered = (p - 0.5).abs();
    if centered < 0.05 {
        return std::f64::consts::SQRT_2 * erfinv(2.0 * (p - 0.5));
    }
    sign * std::f64::consts::SQRT_2 * erfc_inverse(2.0 * p.min(1.0 - p))
}

pub(super) fn lgamma(x: f64) -> f64 {
    if x.is_infinite() { f64::INFINITY } else { libm::lgamma(x) }
}

pub(super) fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    if x <= 0.0 && x == x.floor() {
        return f64::NAN;
    }
    if x < 0.0 {
        let angle = std::f64::consts::PI * (x - x.round());
        return digamma(1.0 - x) - std::f64::consts::PI / angle.tan();
    }
    let (mut z, mut sum) = (x, 0.0);
    while z < 20.0 {
        sum -= 1.0 / z;
        z += 1.0;
    }
    let s = 1.0 / (z * z);
    sum + z.ln()
        - 0.5 / z
        - s * (1.0 / 12.0 - s * (1.0 / 120.0 - s * (1.0 / 252.0 - s * (1.0 / 240.0 - s / 132.0))))
}

/// The rows, sorted by op.
pub(super) const ROWS: &[Row] = &[
    unary(
        "Digamma",
        &[
            case(&[F16, F32], "digamma_f32(x)", Float1(digamma)).ulps(6).near_zero(4e-6),
            case(&[F64], "digamma_f64(x)", Float1(digamma)).ulps(8).near_zero(1e-14),
        ],
    ),
    unary("Erf", &[case(FLOATS, "erf_{T}(x)", Float1(libm::erf)).ulps(4).domain(-4.0, 4.0)]),
    unary("Erfc", &[case(FLOATS, "erfc_{T}(x)", Float1(libm::erfc)).ulps(6).domain(-4.0, 10.0)]),
    unary(
        "Erfinv",
        &[case(&[F32, F64], "erfinv_{T}(x)", Float1(erfinv)).ulps(6).domain(-1.0, 1.0)],
    ),
    unary(
        "Lgamma",
        &[
            case(&[F16, F32], "lgamma_f32(x)", Float1(lgamma))
                .ulps(6)
                .near_zero(4e-6)
                .domain(-10.0, 20.0),
            case(&[F64], "lgamma_f64(x)", Float1(lgamma))
                .ulps(6)
                .near_zero(1e-14)
                .domain(-10.0, 20.0),
        ],
    ),
    unary(
        "Ndtri",
        &[
            case(&[F32], "ndtri_f32(x)", Float1(ndtri)).ulps(6).near_zero(1e-7).domain(0.0, 1.0),
            case(&[F64], "ndtri_f64(x)", Float1(ndtri)).ulps(8).near_zero(1e-15).domain(0.0, 1.0),
        ],
    ),
];
