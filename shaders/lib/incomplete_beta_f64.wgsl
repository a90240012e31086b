// The regularized incomplete beta function: its continued fraction times the density, by which the
// beta function is never formed.

// a - (a + b) x, whose leading digits cancel where the density is large; products of upper halves
// are exact.
fn beta_excess_f64(a: f64, b: f64, x: f64) -> f64 {
    let ah = bitcast<f64>(bitcast<u64>(a) & 0xfffffffff8000000lu);
    let bh = bitcast<f64>(bitcast<u64>(b) & 0xfffffffff8000000lu);
    let xh = bitcast<f64>(bitcast<u64>(x) & 0xfffffffff8000000lu);
    let xl = x - xh;
    return ((((a - ah * xh) - bh * xh) - ah * xl) - bh * xl) - ((a - ah) * x + (b - bh) * x);
}

// ln(gamma(a + b) / gamma(b)) - a ln(a + b) for b >= 8.
fn gamma_quotient_f64(a: f64, b: f64) -> f64 {
    return (b - 0.5lf) * log1p_f64(a / b) - a + stirling_f64(a + b) - stirling_f64(b);
}

// x^a (1 - x)^b / B(a, b) for 0 < x < 1.
fn beta_density_f64(a: f64, b: f64, x: f64) -> f64 {
    let y = 1.0lf - x;
    if a >= 8.0lf && b >= 8.0lf {
        let excess = beta_excess_f64(a, b, x);
        let exponent = a * log1p_rest_f64(-excess / a) + b * log1p_rest_f64(excess / b);
        return exp_f64(exponent - stirling_f64(a) - stirling_f64(b) + stirling_f64(a + b))
            * sqrt(a / (6.28318530717958648lf * (a + b)) * b);
    }
    if a < 8.0lf && b < 8.0lf {
        let powers = exp_f64(a * log_f64(x) + b * log1p_f64(-x));
        // gamma(a + b + 1), gamma(a + 1) and gamma(b + 1) by one call, since each is long.
        var arguments = vec3<f64>(a + b, a, b);
        var gammas = arguments;
        for (var k = 0u; k < rounds(3u); k += 1u) {
            gammas = vec3<f64>(gammas.yz, gamma_next_f64(arguments.x));
            arguments = arguments.yzx;
        }
        return powers * (a / (a + b) * b) * (gammas.x / (gammas.y * gammas.z));
    }
    // The power of the lesser of the two is computed, with the factor (a + b) included.
    let is_first = a < b;
    let lesser = select(b, a, is_first);
    let greater = select(a, b, is_first);
    var rest = 0.0lf;
    if is_first {
        rest = log1p_f64(-x);
    } else {
        rest = log_f64(x);
    }
    let exponent = lesser * log_f64(select(y, x, is_first) * (a + b)) + greater * rest
        + gamma_quotient_f64(lesser, greater);
    return lesser * exp_f64(exponent) / gamma_next_f64(lesser);
}

// The continued fraction of the incomplete beta function by Lentz' method.
fn beta_fraction_f64(a: f64, b: f64, x: f64) -> f64 {
    let least = 1e-290lf;
    var c = 1.0lf;
    var d = 1.0lf - (a + b) * x / (a + 1.0lf);
    if abs(d) < least {
        d = least;
    }
    d = 1.0lf / d;
    var h = d;
    for (var n = 1u; n < 1000u; n += 1u) {
        let m = f64(n);
        let even = m * (b - m) * x / ((a + 2.0lf * m - 1.0lf) * (a + 2.0lf * m));
        d = 1.0lf + even * d;
        c = 1.0lf + even / c;
        d = 1.0lf / select(d, least, abs(d) < least);
        c = select(c, least, abs(c) < least);
        h *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0lf * m) * (a + 2.0lf * m + 1.0lf));
        d = 1.0lf + odd * d;
        c = 1.0lf + odd / c;
        d = 1.0lf / select(d, least, abs(d) < least);
        c = select(c, least, abs(c) < least);
        let change = d * c;
        h *= change;
        if abs(change - 1.0lf) < 3e-16lf {
            break;
        }
    }
    return h;
}

// The order of the checks is TensorFlow's: 0 and 1 even where a or b is NaN.
fn betainc_f64(a: f64, b: f64, x: f64) -> f64 {
    // A distribution that lies entirely at 0, as in TensorFlow since 2.22; earlier versions give
    // NaN.
    if a == 0.0lf && b > 0.0lf && x >= 0.0lf && x <= 1.0lf && !is_nan_f64(x) {
        return 1.0lf;
    }
    if a <= 0.0lf || b <= 0.0lf {
        return nan_like_f64(x);
    }
    if x == 0.0lf || x == 1.0lf {
        return abs(x);
    }
    if !(x > 0.0lf && x < 1.0lf) || !is_finite_f64(a) || !is_finite_f64(b) {
        return nan_like_f64(x);
    }
    // The fraction converges fast below the mean. For small b the difference below would cancel.
    let below = x <= (a + 1.0lf) / (a + b + 2.0lf) || (b < 0.5lf && x < 0.97lf);
    let first = select(b, a, below);
    let fraction = beta_fraction_f64(first, select(a, b, below), select(1.0lf - x, x, below));
    let tail = beta_density_f64(a, b, x) / first * fraction;
    return select(1.0lf - tail, tail, below);
}
