//! The incomplete gamma and beta functions, the zeta function and related ones in float64, for the
//! tests: series, quadratures and continued fractions that are evaluated in full.

use super::probability::{digamma, lgamma};
use std::f64::consts::PI;

/// Stirling's correction to ln gamma(a), from a = 10 on.
fn stirling(a: f64) -> f64 {
    let z = 1.0 / (a * a);
    (1.0 / 12.0 - z * (1.0 / 360.0 - z * (1.0 / 1260.0 - z * (1.0 / 1680.0 - z / 1188.0)))) / a
}

/// ln(1 + m) - m.
fn log1p_rest(m: f64) -> f64 {
    if m.abs() > 0.1 {
        return m.ln_1p() - m;
    }
    let (mut power, mut sum) = (m, 0.0);
    for k in 2..30 {
        power *= -m;
        sum += power / f64::from(k);
    }
    sum
}

/// ln gamma(a + 1), by its power series where a + 1 would be rounded.
fn lgamma_next(a: f64) -> f64 {
    const COEFFICIENTS: [f64; 5] = [
        -0.577_215_664_901_532_9,
        0.822_467_033_424_113_2,
        -0.400_685_634_386_531_4,
        0.270_580_808_427_784_5,
        -0.207_385_551_028_673_98,
    ];
    if a < 1e-3 {
        COEFFICIENTS.iter().rev().fold(0.0, |sum, c| (sum + c) * a)
    } else {
        lgamma(a + 1.0)
    }
}

/// x^a exp(-x) / gamma(a + 1).
fn density(a: f64, x: f64) -> f64 {
    if a > 10.0 {
        let m = (x - a) / a;
        let rest = if m.abs() > 0.5 { (x / a).ln() - m } else { log1p_rest(m) };
        return (a * rest - stirling(a)).exp() / (2.0 * PI * a).sqrt();
    }
    (a * x.ln() - x - lgamma_next(a)).exp()
}

/// P / density, and the part of its derivative by a that comes from the terms' dependence on a.
fn series(a: f64, x: f64) -> (f64, f64) {
    let (mut term, mut harmonic, mut sum, mut slope) = (1.0, 0.0, 1.0, 0.0);
    for n in 1..1_000_000 {
        let d = a + f64::from(n);
        term *= x / d;
        harmonic += 1.0 / d;
        sum += term;
        slope -= term * harmonic;
        if term < 1e-18 * sum {
            break;
        }
    }
    (sum, slope)
}

/// The integrals over exp(-t) (1 + t / x)^(a - 1) and over the same times ln(1 + t / x), by the
/// trapezoidal rule in u, t = exp(u - exp(-u)): Q over the density of the distribution, and the
/// term that Q's derivative adds.
fn tail(a: f64, x: f64) -> (f64, f64) {
    let (mut value, mut slope) = (0.0, 0.0);
    let step = 1.0 / 32.0;
    for k in -128..800 {
        let u = f64::from(k) * step;
        let t = (u - (-u).exp()).exp();
        let log = (t / x).ln_1p();
        let exponent = (a - 1.0) * log - t;
        if exponent < -745.0 {
            continue;
        }
        let weight = exponent.exp() * t * (1.0 + (-u).exp()) * step;
        value += weight;
        slope += weight * log;
    }
    (value, slope)
}

/// P(a, x) and Q(a, x) for a and x above 0, each without cancellation.
fn regularized(a: f64, x: f64) -> (f64, f64) {
    if x > a.max(1.0) {
        let q = density(a, x) * a / x * tail(a, x).0;
        return (1.0 - q, q);
    }
    let p = density(a, x) * series(a, x).0;
    if a < 1.0 {
        // Q is the whole integral less the series of P; 1 over a is subtracted from both.
        let exponent = a * x.ln() - lgamma_next(a);
        let (mut factor, mut sum) = (1.0, 0.0);
        for n in 1..60 {
            factor *= -x / f64::from(n);
            sum += factor / (a + f64::from(n));
        }
        return (p, -exponent.exp_m1() - exponent.exp() * a * sum);
    }
    (p, 1.0 - p)
}

pub(super) fn igamma(a: f64, x: f64) -> f64 {
    if x == 0.0 {
        return 0.0;
    }
    if !(x > 0.0 && a > 0.0) {
        return f64::NAN;
    }
    if a.is_infinite() || x.is_infinite() {
        return if a.is_infinite() { 0.0 } else { 1.0 };
    }
    regularized(a, x).0
}

pub(super) fn igammac(a: f64, x: f64) -> f64 {
    if !(x >= 0.0 && a > 0.0) {
        return f64::NAN;
    }
    if x == 0.0 || a.is_infinite() || x.is_infinite() {
        return if x.is_infinite() { 0.0 } else { 1.0 };
    }
    regularized(a, x).1
}

pub(super) fn random_gamma_grad(a: f64, x: f64) -> f64 {
    if x == 0.0 {
        return 0.0;
    }
    if !(x > 0.0 && a > 0.0) {
        return f64::NAN;
    }
    if a.is_infinite() || x.is_infinite() {
        return 0.0;
    }
    if x > a.max(1.0) {
        let (value, slope) = tail(a, x);
        return (x.ln() - digamma(a)) * value + slope;
    }
    let (sum, slope) = series(a, x);
    -((x.ln() - digamma(a + 1.0)) * sum + slope) * x / a
}

pub(super) fn igamma_grad_a(a: f64, x: f64) -> f64 {
    let grad = random_gamma_grad(a, x);
    if grad == 0.0 || grad.is_nan() { grad } else { -grad * density(a, x) * a / x }
}

/// Hurwitz' zeta function for q above 0: a long sum, then Euler and Maclaurin's formula.
fn zeta_positive(x: f64, q: f64) -> f64 {
    let n = if q > 1000.0 { 0 } else { 200 };
    let sum: f64 = (0..n).rev().map(|k| (q + f64::from(k)).powf(-x)).sum();
    let a = q + f64::from(n);
    let power = a.powf(-x);
    let mut rest = power * (a / (x - 1.0) + 0.5);
    let mut factor = power * x / a;
    // (2k)! / B(2k)
    for (k, d) in [12.0, -720.0, 30240.0, -1_209_600.0, 47_900_160.0, -1.892_437_580_318_379e9]
        .into_iter()
        .enumerate()
    {
        rest += factor / d;
        let k = 2.0 * k as f64;
        factor *= (x + k + 1.0) * (x + k + 2.0) / (a * a);
    }
    if rest.is_nan() || x > 1000.0 && n == 0 {
        // The powers fall faster than the formula converges.
        let tail: f64 = (0..100_000).rev().map(|k| (q + f64::from(k)).powf(-x)).sum();
        return tail;
    }
    sum + rest
}

pub(super) fn zeta(x: f64, q: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    if x.is_nan() || x < 1.0 || q.is_nan() {
        return f64::NAN;
    }
    let even = x.is_infinite() || x % 2.0 == 0.0;
    if q <= 0.0 && q.floor() == q {
        return if even { f64::INFINITY } else { f64::NAN };
    }
    if q < 0.0 && x.floor() != x {
        return f64::NAN;
    }
    if q.is_infinite() {
        return 0.0;
    }
    if x.is_infinite() {
        return if q == 1.0 {
            1.0
        } else if q > 1.0 {
            0.0
        } else {
            f64::INFINITY
        };
    }
    if q > 0.0 {
        return zeta_positive(x, q);
    }
    // Bases on either side of zero are taken in pairs, since their powers may cancel.
    let above = q - q.floor();
    let below = (q.floor() + 1.0) - q;
    let terms = (-q).ceil() as i64;
    let sign = if even { 1.0 } else { -1.0 };
    let pairs: f64 =
        (0..terms).map(|k| (k as f64 + above).powf(-x) + sign * (k as f64 + below).powf(-x)).sum();
    pairs + zeta_positive(x, above + terms as f64)
}

fn polygamma(n: f64, x: f64, largest_factorial: f64, least: f64) -> f64 {
    if n.is_nan() || n < 0.0 || n.floor() != n {
        return f64::NAN;
    }
    if n == 0.0 {
        return if x == 0.0 { f64::NAN } else { digamma(x) };
    }
    let sign = if n % 2.0 == 0.0 { -1.0 } else { 1.0 };
    let zeta = zeta(n + 1.0, x);
    if n > largest_factorial {
        // This is infinity times 0, as in TensorFlow.
        return if zeta.abs() < least { f64::NAN } else { sign * f64::INFINITY * zeta };
    }
    sign * (1..=n as i32).map(f64::from).product::<f64>() * zeta
}

/// The polygamma function with float32's overflow.
pub(super) fn polygamma_f32(n: f64, x: f64) -> f64 {
    polygamma(n, x, 34.0, f64::from(f32::MIN_POSITIVE))
}

/// The polygamma function with float64's overflow.
pub(super) fn polygamma_f64(n: f64, x: f64) -> f64 {
    polygamma(n, x, 170.0, f64::MIN_POSITIVE)
}

/// ln B(a, b).
fn lbeta(a: f64, b: f64) -> f64 {
    let (small, large) = (a.min(b), a.max(b));
    if large < 10.0 {
        return lgamma(a) + lgamma(b) - lgamma(a + b);
    }
    let sum = a + b;
    // The quotient gamma(large + small) / gamma(large), without loss.
    let quotient =
        (large - 0.5) * (small / large).ln_1p() + small * (sum.ln() - 1.0) + stirling(sum)
            - stirling(large);
    lgamma(small) - quotient
}

/// The incomplete beta function by its continued fraction, evaluated from its last term.
fn beta_below_mean(a: f64, b: f64, x: f64) -> f64 {
    let log = a * x.ln() + b * (-x).ln_1p() - lbeta(a, b);
    let mut value = 1.0;
    for n in (1..3000).rev() {
        let m = f64::from(n);
        value = 1.0 - (a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0)) / value;
        value = 1.0 + m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m)) / value;
    }
    value = 1.0 - (a + b) * x / (a + 1.0) / value;
    log.exp() / a / value
}

pub(super) fn betainc(a: f64, b: f64, x: f64) -> f64 {
    if a == 0.0 && b > 0.0 && (0.0..=1.0).contains(&x) {
        return 1.0;
    }
    if a <= 0.0 || b <= 0.0 {
        return f64::NAN;
    }
    if x == 0.0 || x == 1.0 {
        return x.abs();
    }
    if x.is_nan() || x <= 0.0 || x >= 1.0 || !a.is_finite() || !b.is_finite() {
        return f64::NAN;
    }
    if x <= (a + 1.0) / (a + b + 2.0) {
        beta_below_mean(a, b, x)
    } else {
        1.0 - beta_below_mean(b, a, 1.0 - x)
    }
}
