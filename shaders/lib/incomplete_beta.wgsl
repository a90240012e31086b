// The regularized incomplete beta function: its continued fraction times the density, by which the
// beta function is never formed.

// a - (a + b) x, whose leading digits cancel where the density is large; products of upper halves
// are exact.
fn beta_excess_f32(a: f32, b: f32, x: f32) -> f32 {
    let ah = bitcast<f32>(bitcast<u32>(a) & 0xfffff000u);
    let bh = bitcast<f32>(bitcast<u32>(b) & 0xfffff000u);
    let xh = bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
    let xl = x - xh;
    return ((((a - ah * xh) - bh * xh) - ah * xl) - bh * xl) - ((a - ah) * x + (b - bh) * x);
}

// ln(gamma(a + b) / gamma(b)) - a ln(a + b) for b >= 8.
fn gamma_quotient_f32(a: f32, b: f32) -> f32 {
    return (b - 0.5) * log1p_f32(a / b) - a + stirling_f32(a + b) - stirling_f32(b);
}

// x^a (1 - x)^b / B(a, b) for 0 < x < 1.
fn beta_density_f32(a: f32, b: f32, x: f32) -> f32 {
    let y = 1.0 - x;
    if a >= 8.0 && b >= 8.0 {
        let excess = beta_excess_f32(a, b, x);
        let exponent = a * log1p_rest_f32(-excess / a) + b * log1p_rest_f32(excess / b);
        return exp_f32(exponent - stirling_f32(a) - stirling_f32(b) + stirling_f32(a + b))
            * sqrt(a / (6.28318531 * (a + b)) * b);
    }
    if a < 8.0 && b < 8.0 {
        let powers = exp_f32(a * log_f32(x) + b * log1p_f32(-x));
        // gamma(a + b + 1), gamma(a + 1) and gamma(b + 1) by one call, since each is long.
        var arguments = vec3<f32>(a + b, a, b);
        var gammas = arguments;
        for (var k = 0u; k < rounds(3u); k += 1u) {
            gammas = vec3<f32>(gammas.yz, gamma_next_f32(arguments.x));
            arguments = arguments.yzx;
        }
        return powers * (a / (a + b) * b) * (gammas.x / (gammas.y * gammas.z));
    }
    // The power of the lesser of the two is computed, with the factor (a + b) included.
    let is_first = a < b;
    let lesser = select(b, a, is_first);
    let greater = select(a, b, is_first);
    var rest = 0.0;
    if is_first {
        rest = log1p_f32(-x);
    } else {
        rest = log_f32(x);
    }
    let exponent = lesser * log_f32(select(y, x, is_first) * (a + b)) + greater * rest
        + gamma_quotient_f32(lesser, greater);
    return lesser * exp_f32(exponent) / gamma_next_f32(lesser);
}

// The continued fraction of the incomplete beta function by Lentz' method.
fn beta_fraction_f32(a: f32, b: f32, x: f32) -> f32 {
    let least = 1e-30;
    var c = 1.0;
    var d = 1.0 - (a + b) * x / (a + 1.0);
    if abs(d) < least {
        d = least;
    }
    d = 1.0 / d;
    var h = d;
    for (var n = 1u; n < 1000u; n += 1u) {
        let m = f32(n);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        d = 1.0 + even * d;
        c = 1.0 + even / c;
        d = 1.0 / select(d, least, abs(d) < least);
        c = select(c, least, abs(c) < least);
        h *= d * c;
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        d = 1.0 + odd * d;
        c = 1.0 + odd / c;
        d = 1.0 / select(d, least, abs(d) < least);
        c = select(c, least, abs(c) < least);
        let change = d * c;
        h *= change;
        if abs(change - 1.0) < 1e-7 {
            break;
        }
    }
    return h;
}

// The order of the checks is TensorFlow's: 0 and 1 even where a or b is NaN.
fn betainc_f32(a: f32, b: f32, x: f32) -> f32 {
    // A distribution that lies entirely at 0, as in TensorFlow since 2.22; earlier versions give
    // NaN.
    if a == 0.0 && b > 0.0 && x >= 0.0 && x <= 1.0 && !is_nan_f32(x) {
        return 1.0;
    }
    if a <= 0.0 || b <= 0.0 {
        return nan_like_f32(x);
    }
    if x == 0.0 || x == 1.0 {
        return abs(x);
    }
    if !(x > 0.0 && x < 1.0) || !is_finite_f32(a) || !is_finite_f32(b) {
        return nan_like_f32(x);
    }
    // The fraction converges fast below the mean. For small b the difference below would cancel.
    let below = x <= (a + 1.0) / (a + b + 2.0) || (b < 0.5 && x < 0.97);
    let first = select(b, a, below);
    let fraction = beta_fraction_f32(first, select(a, b, below), select(1.0 - x, x, below));
    let tail = beta_density_f32(a, b, x) / first * fraction;
    return select(1.0 - tail, tail, below);
}
