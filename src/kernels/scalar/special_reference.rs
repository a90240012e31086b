//! The special functions in float64, for the tests: series, asymptotic series and quadratures, not
//! the fits that the shaders evaluate.

use std::f64::consts::PI;

/// The argument from which on Bessel's asymptotic series reach the precision of f64.
const ASYMPTOTIC: f64 = 50.0;

/// Sum of Hankel's asymptotic series of order `n`, with alternating signs for I and the same signs
/// for K.
fn hankel(n: f64, x: f64, sign: f64) -> f64 {
    let (mut term, mut sum) = (1.0, 1.0);
    for k in 1..40 {
        let k = f64::from(k);
        term *= sign * (4.0 * n * n - (2.0 * k - 1.0) * (2.0 * k - 1.0)) / (8.0 * k * x);
        sum += term;
    }
    sum
}

/// exp(-|x|) I_n(x).
fn scaled_i(n: i32, x: f64) -> f64 {
    let a = x.abs();
    let sign = if n == 1 && x < 0.0 { -1.0 } else { 1.0 };
    if a > ASYMPTOTIC {
        return if a.is_infinite() {
            0.0
        } else {
            sign * hankel(f64::from(n), a, -1.0) / (2.0 * PI).sqrt() / a.sqrt()
        };
    }
    let mut term = if n == 0 { 1.0 } else { 0.5 * x };
    let mut sum = 0.0;
    for k in 1..200 {
        sum += term;
        term *= 0.25 * x * x / (f64::from(k) * f64::from(k + n));
    }
    sum * (-a).exp()
}

/// exp(x) K_n(x) by the trapezoidal rule on the integral over exp(x - x cosh t) cosh(n t), whose
/// error falls exponentially.
fn scaled_k(n: i32, x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    if x <= 0.0 {
        return f64::INFINITY;
    }
    if x > ASYMPTOTIC {
        return if x.is_infinite() {
            0.0
        } else {
            hankel(f64::from(n), x, 1.0) * (0.5 * PI).sqrt() / x.sqrt()
        };
    }
    let step = 1.0 / 16.0;
    let integrand = |t: f64| {
        // The value of cosh t - 1, without loss.
        let s = (0.5 * t).sinh();
        let weight = if n == 0 { 1.0 } else { t.cosh() };
        // The product with x is taken before the exponential, so that tiny x stay finite.
        let exponent = -2.0 * x * s * s;
        if exponent < -745.0 { 0.0 } else { exponent.exp() * weight }
    };
    let mut sum = 0.5 * integrand(0.0);
    for k in 1..24_000 {
        let value = integrand(f64::from(k) * step);
        sum += value;
        if value < 1e-30 * sum {
            break;
        }
    }
    sum * step
}

/// TensorFlow gives NaN at the infinities where exp overflows before the product with 0.
fn finite(x: f64, f: impl Fn(f64) -> f64) -> f64 {
    if x.is_finite() { f(x) } else { f64::NAN }
}

fn product_with_exp(scaled: f64, exponent: f64) -> f64 {
    let half = (0.5 * exponent).exp();
    scaled * half * half
}

pub(super) fn i0e(x: f64) -> f64 {
    scaled_i(0, x)
}

pub(super) fn i1e(x: f64) -> f64 {
    scaled_i(1, x)
}

pub(super) fn i0(x: f64) -> f64 {
    finite(x, |x| product_with_exp(scaled_i(0, x), x.abs()))
}

pub(super) fn i1(x: f64) -> f64 {
    finite(x, |x| product_with_exp(scaled_i(1, x), x.abs()))
}

pub(super) fn k0e(x: f64) -> f64 {
    scaled_k(0, x)
}

pub(super) fn k1e(x: f64) -> f64 {
    scaled_k(1, x)
}

pub(super) fn k0(x: f64) -> f64 {
    if x > 0.0 { scaled_k(0, x) * (-x).exp() } else { scaled_k(0, x) }
}

pub(super) fn k1(x: f64) -> f64 {
    if x > 0.0 { scaled_k(1, x) * (-x).exp() } else { scaled_k(1, x) }
}

pub(super) fn j0(x: f64) -> f64 {
    finite(x, libm::j0)
}

pub(super) fn j1(x: f64) -> f64 {
    finite(x, libm::j1)
}

fn second_kind(x: f64, y: fn(f64) -> f64) -> f64 {
    if x <= 0.0 { f64::NEG_INFINITY } else { finite(x, y) }
}

pub(super) fn y0(x: f64) -> f64 {
    second_kind(x, libm::y0)
}

pub(super) fn y1(x: f64) -> f64 {
    second_kind(x, libm::y1)
}

/// Dawson's integral: its power series, Rybicki's sum or the asymptotic series.
pub(super) fn dawsn(x: f64) -> f64 {
    let a = x.abs();
    if a < 1.0 || a.is_nan() {
        let (mut term, mut sum) = (x, 0.0);
        for k in 0..40 {
            sum += term;
            term *= -2.0 * x * x / f64::from(2 * k + 3);
        }
        return sum;
    }
    if a > 10.0 {
        let (mut term, mut sum) = (1.0, 0.0);
        for k in 0..40 {
            sum += term;
            term *= f64::from(2 * k + 1) / (2.0 * x * x);
        }
        return 0.5 * sum / x;
    }
    let step = 0.2;
    let sum: f64 = (-200i32..200)
        .map(|k| {
            let n = f64::from(2 * k + 1);
            (-(x - n * step) * (x - n * step)).exp() / n
        })
        .sum();
    sum / PI.sqrt()
}

/// The exponential integral Ei; NaN for infinity and below zero, as in TensorFlow.
pub(super) fn expint(x: f64) -> f64 {
    const EULER: f64 = 0.577_215_664_901_532_9;
    if x.is_nan() || x < 0.0 || x.is_infinite() {
        return f64::NAN;
    }
    if x > 40.0 {
        let (mut term, mut sum) = (1.0, 0.0);
        for k in 1..=40 {
            sum += term;
            term *= f64::from(k) / x;
        }
        return product_with_exp(sum / x, x);
    }
    let (mut power, mut sum) = (1.0, 0.0);
    for k in 1..200 {
        power *= x / f64::from(k);
        sum += power / f64::from(k);
    }
    EULER + x.ln() + sum
}

/// Cosine and sine of pi x^2 / 2, with the square modulo 4.
fn square_turn(x: f64) -> (f64, f64) {
    let square = x * x;
    let turns = square % 4.0 + x.mul_add(x, -square);
    let quarter = turns.round();
    let (s, c) = (0.5 * PI * (turns - quarter)).sin_cos();
    match quarter as i64 & 3 {
        0 => (c, s),
        1 => (-s, c),
        2 => (-c, -s),
        _ => (s, -c),
    }
}

/// The Fresnel integrals C and S: power series, or a continued fraction of erfc.
fn fresnel(x: f64) -> (f64, f64) {
    let a = x.abs();
    if a.is_nan() {
        return (x, x);
    }
    if a > 1e150 {
        return (0.5_f64.copysign(x), 0.5_f64.copysign(x));
    }
    let (mut c, mut s) = (0.0, 0.0);
    if a < 1.6 {
        let z = 0.5 * PI * a * a;
        let mut term = a;
        for k in 0..60 {
            let n = f64::from(2 * k + 1);
            let value = term / n;
            match k & 3 {
                0 => c += value,
                1 => s += value,
                2 => c -= value,
                _ => s -= value,
            }
            term *= z / f64::from(k + 1);
        }
    } else {
        // Lentz' method on erfc(z), z = sqrt(pi) / 2 (1 - i) x.
        type Complex = (f64, f64);
        let mul = |a: Complex, b: Complex| (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0);
        let inverse = |a: Complex| {
            let n = a.0 * a.0 + a.1 * a.1;
            (a.0 / n, -a.1 / n)
        };
        let square = PI * a * a;
        let mut b = (1.0, -square);
        let mut cc: Complex = (1e300, 0.0);
        let mut d = inverse(b);
        let mut h = d;
        let mut n = -1.0;
        for _ in 0..2000 {
            n += 2.0;
            let e = -n * (n + 1.0);
            b.0 += 4.0;
            d = inverse((e * d.0 + b.0, e * d.1 + b.1));
            let i = inverse(cc);
            cc = (b.0 + e * i.0, b.1 + e * i.1);
            let delta = mul(cc, d);
            h = mul(h, delta);
            if (delta.0 - 1.0).abs() + delta.1.abs() < 1e-16 {
                break;
            }
        }
        h = mul((a, -a), h);
        let t = mul(square_turn(a), h);
        let result = mul((0.5, 0.5), (1.0 - t.0, -t.1));
        (c, s) = result;
    }
    (c.copysign(x), s.copysign(x))
}

pub(super) fn fresnel_cos(x: f64) -> f64 {
    fresnel(x).0
}

pub(super) fn fresnel_sin(x: f64) -> f64 {
    fresnel(x).1
}

/// The dilogarithm of 1 - x by its expansion in -ln x, whose coefficients are Bernoulli numbers.
pub(super) fn spence(x: f64) -> f64 {
    if x.is_nan() || x < 0.0 || x.is_infinite() {
        return f64::NAN;
    }
    if x == 0.0 {
        return PI * PI / 6.0;
    }
    let u = -x.ln();
    if u > 2.0 {
        return PI * PI / 6.0 - x.ln() * (-x).ln_1p() - spence_in(-(-x).ln_1p());
    }
    if u < -2.0 {
        return -0.5 * u * u - spence(1.0 / x);
    }
    spence_in(u)
}

/// Li2(1 - exp(-u)) for |u| <= 2.
fn spence_in(u: f64) -> f64 {
    let mut sum = u - 0.25 * u * u;
    let ratio = u / (2.0 * PI);
    let mut power = u;
    for k in 1..40i32 {
        power *= -ratio * ratio;
        // B(2k) / (2k)! = -2 zeta(2k) (-1)^k / (2 pi)^2k
        let zeta: f64 = if k < 3 {
            [PI.powi(2) / 6.0, PI.powi(4) / 90.0][k as usize - 1]
        } else {
            (1..2000).rev().map(|n| f64::from(n).powi(-2 * k)).sum()
        };
        let term = -2.0 * zeta * power / f64::from(2 * k + 1);
        sum += term;
        if term.abs() < 1e-18 * sum.abs() {
            break;
        }
    }
    sum
}
