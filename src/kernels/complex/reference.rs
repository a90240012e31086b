//! Complex arithmetic in Rust, on pairs of f64: the reference for the rows' tests.

use crate::kernels::scalar::row::Complex;

/// The sum.
pub const fn add(x: Complex, y: Complex) -> Complex {
    [x[0] + y[0], x[1] + y[1]]
}

/// The difference.
pub const fn sub(x: Complex, y: Complex) -> Complex {
    [x[0] - y[0], x[1] - y[1]]
}

/// The product.
pub const fn mul(x: Complex, y: Complex) -> Complex {
    [x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]]
}

/// The quotient, by C's Annex G.
pub fn div(x: Complex, y: Complex) -> Complex {
    let largest = y[0].abs().max(y[1].abs());
    if y == [0.0, 0.0] {
        let infinity = f64::INFINITY.copysign(y[0]);
        return [infinity * x[0], infinity * x[1]];
    }
    if largest.is_infinite() && x[0].is_finite() && x[1].is_finite() {
        return [0.0, 0.0];
    }
    // Both are scaled to half of the exponent's range: the divisor near 1, and the dividend so that
    // its products stay finite.
    let (half, d) = (0.5 * x[0].abs().max(x[1].abs()), [y[0] / largest, y[1] / largest]);
    let scale = if half.is_finite() && half > 1e300 { 0.25 } else { 1.0 };
    let x = [x[0] * scale, x[1] * scale];
    let bottom = d[0] * d[0] + d[1] * d[1];
    [
        (x[0] * d[0] + x[1] * d[1]) / bottom / largest / scale,
        (x[1] * d[0] - x[0] * d[1]) / bottom / largest / scale,
    ]
}

/// The conjugate.
pub const fn conj(z: Complex) -> Complex {
    [z[0], -z[1]]
}

/// The absolute value.
pub fn abs(z: Complex) -> f64 {
    z[0].hypot(z[1])
}

/// The number of absolute value 1 in the same direction; 0 for 0.
pub fn sign(z: Complex) -> Complex {
    if z == [0.0, 0.0] { z } else { [z[0] / abs(z), z[1] / abs(z)] }
}

/// A product that is 0 if a factor is 0.
fn part(a: f64, b: f64) -> f64 {
    if a == 0.0 || b == 0.0 { 0.0 } else { a * b }
}

/// The exponential function.
pub fn exp(z: Complex) -> Complex {
    let e = z[0].exp();
    if z[0] == f64::INFINITY && !z[1].is_finite() {
        return [z[0], f64::NAN];
    }
    [part(e, z[1].cos()), part(e, z[1].sin())]
}

/// The hyperbolic sine.
pub fn sinh(z: Complex) -> Complex {
    if z[0].is_infinite() && !z[1].is_finite() {
        return [z[0], f64::NAN];
    }
    [part(z[0].sinh(), z[1].cos()), part(z[0].cosh(), z[1].sin())]
}

/// The hyperbolic cosine.
pub fn cosh(z: Complex) -> Complex {
    if z[0].is_infinite() && !z[1].is_finite() {
        return [z[0].abs(), f64::NAN];
    }
    [part(z[0].cosh(), z[1].cos()), part(z[0].sinh(), z[1].sin())]
}

/// The sine: -i sinh(iz).
pub fn sin(z: Complex) -> Complex {
    let w = sinh([-z[1], z[0]]);
    [w[1], -w[0]]
}

/// The cosine: cosh(iz).
pub fn cos(z: Complex) -> Complex {
    cosh([-z[1], z[0]])
}

/// The tangent.
pub fn tan(z: Complex) -> Complex {
    // Beyond |im| = 20 the hyperbolic functions differ from exponentials by less than f64 can tell.
    if z[1].abs() > 20.0 {
        let turn = if z[0].is_finite() {
            4.0 * z[0].sin() * z[0].cos() * (-2.0 * z[1].abs()).exp()
        } else {
            0.0
        };
        return [turn, 1f64.copysign(z[1])];
    }
    let (t, s) = (z[0].tan(), z[1].sinh());
    let bottom = 1.0 + (1.0 + t * t) * s * s;
    [
        if z[0] == 0.0 { 0.0 } else { t / bottom },
        if z[1] == 0.0 { 0.0 } else { (1.0 + t * t) * (1.0 + s * s).sqrt() * s / bottom },
    ]
}

/// The principal logarithm.
pub fn log(z: Complex) -> Complex {
    let a = z[0].abs().max(z[1].abs());
    let real = if a > 0.5 && a < 2.0 {
        let b = z[0].abs().min(z[1].abs());
        0.5 * ((a - 1.0) * (a + 1.0) + b * b).ln_1p()
    } else {
        abs(z).ln()
    };
    [real, z[1].atan2(z[0])]
}

/// log(1 + z).
pub fn log1p(z: Complex) -> Complex {
    if z[0].abs().max(z[1].abs()) >= 0.5 {
        return log([1.0 + z[0], z[1]]);
    }
    [0.5 * (2.0 * z[0] + (z[0] * z[0] + z[1] * z[1])).ln_1p(), z[1].atan2(1.0 + z[0])]
}
