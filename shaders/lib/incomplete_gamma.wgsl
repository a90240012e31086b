// The incomplete gamma functions and their derivatives by a: power series, Legendre's continued
// fraction, and Temme's expansion where both would be long. Loops end when a term no longer counts,
// or after 2000 terms.

// ln gamma(a + 1) / (a (a - 1)).
fn lgamma_quotient_f32(a: f32) -> f32 {
    let t = a * 2.0 - 1.0;
    var s = -2.97940396e-06;
    s = s * t + 9.56350441e-06;
    s = s * t - 2.43471764e-05;
    s = s * t + 8.32068467e-05;
    s = s * t - 2.94887181e-04;
    s = s * t + 1.05051344e-03;
    s = s * t - 3.91349979e-03;
    s = s * t + 1.5727762e-02;
    s = s * t - 7.29799511e-02;
    s = s * t + 4.83128952e-1;
    return s;
}

// ln gamma(a + 1) for 0 <= a <= 1.
fn lgamma_next_f32(a: f32) -> f32 {
    return a * (a - 1.0) * lgamma_quotient_f32(a);
}

// gamma(a + 1) for 0 <= a <= 30.
fn gamma_next_f32(a: f32) -> f32 {
    var z = a;
    var product = 1.0;
    for (var k = 0u; k < 32u && z >= 1.0; k += 1u) {
        product *= z;
        z -= 1.0;
    }
    return product * exp_f32(lgamma_next_f32(z));
}

// The correction to Stirling's formula for ln gamma, a >= 8.
fn stirling_f32(a: f32) -> f32 {
    let r = 1.0 / a;
    let z = r * r;
    var s = 7.93650794e-04;
    s = s * z - 2.77777778e-03;
    s = s * z + 8.33333333e-02;
    return s * r;
}

// ln(1 + m) - m.
fn log1p_rest_f32(m: f32) -> f32 {
    if m <= -0.5 || m >= 1.0 {
        return log1p_f32(m) - m;
    }
    let r = m / (2.0 + m);
    let z = r * r;
    var s = 6.66666667e-02;
    s = s * z + 7.69230769e-02;
    s = s * z + 9.09090909e-02;
    s = s * z + 1.11111111e-1;
    s = s * z + 1.42857143e-1;
    s = s * z + 2.0e-1;
    s = s * z + 3.33333333e-1;
    return r * (2.0 * z * s - m);
}

// x^a exp(-x) / gamma(a + 1) for x > 0 and a > 0.
fn gamma_density_factors_f32(a: f32, x: f32) -> vec2<f32> {
    if a >= 12.0 {
        let m = (x - a) / a;
        let scale = exp_f32(-stirling_f32(a)) / sqrt(6.28318531 * a);
        if (m < -0.5 || m > 1.0) && a < 70.0 && x < 80.0 {
            // The square root, whose factors stay in range.
            let root = pow_f32(x / a, 0.5 * a) * exp_f32(0.5 * (a - x));
            return vec2<f32>(root, root * scale);
        }
        return vec2<f32>(exp_f32(a * log1p_rest_f32(m)), scale);
    }
    let exponent = a * log_f32(x);
    if abs(exponent) < 80.0 && x < 80.0 {
        return vec2<f32>(pow_f32(x, a) * exp_f32(-x) / gamma_next_f32(a), 1.0);
    }
    return vec2<f32>(exp_f32(exponent - x) / gamma_next_f32(a), 1.0);
}

fn gamma_density_f32(a: f32, x: f32) -> f32 {
    let factors = gamma_density_factors_f32(a, x);
    return factors.x * factors.y;
}

// P(a, x) / density by its power series, and the same sum's derivative by a.
fn gamma_series_f32(a: f32, x: f32) -> vec2<f32> {
    var term = 1.0;
    var harmonic = 0.0;
    var sum = vec2<f32>(1.0, 0.0);
    for (var n = 1u; n < 2000u; n += 1u) {
        let d = a + f32(n);
        term *= x / d;
        harmonic -= 1.0 / d;
        sum += term * vec2<f32>(1.0, harmonic);
        if term < 3e-8 * sum.x {
            break;
        }
    }
    return sum;
}

// Q(a, x) / (a density) by its continued fraction for x > 1, and the derivative by a. The
// convergents' numerators and denominators grow together and are scaled down together.
fn gamma_fraction_f32(a: f32, x: f32) -> vec2<f32> {
    if x > 2e4 * (a + 1.0) {
        return vec2<f32>((1.0 + (a - 1.0) / x) / x, 1.0 / x / x);
    }
    var y = 1.0 - a;
    var z = x + y + 1.0;
    // Numerator, denominator, and their derivatives.
    var before = vec4<f32>(1.0 / (z * x), 1.0 / z, 0.0, 0.0);
    var last = vec4<f32>((x + 1.0) / (z * x), 1.0, 0.0, -1.0 / z);
    var value = last.x / last.y;
    var slope = (last.z - value * last.w) / last.y;
    for (var n = 1u; n < 2000u; n += 1u) {
        let c = f32(n);
        y += 1.0;
        z += 2.0;
        let yc = y * c;
        var next = last * z - before * yc;
        next.z += c * before.x - last.x;
        next.w += c * before.y - last.y;
        before = last;
        last = next;
        if last.y != 0.0 {
            let better = last.x / last.y;
            let change = abs(better - value);
            value = better;
            let slope_before = slope;
            slope = (last.z - value * last.w) / last.y;
            if change <= 1e-7 * abs(value) && abs(slope - slope_before) <= 5.0 * 1e-7 * abs(slope) {
                break;
            }
        }
        if abs(last.x) > 1e15 || abs(last.y) > 1e15 {
            before *= 1.0 / 1e15;
            last *= 1.0 / 1e15;
        }
    }
    return vec2<f32>(value, slope);
}

// Q(a, x) for small x and a, where 1 - P cancels.
fn gamma_upper_small_f32(a: f32, x: f32) -> f32 {
    var factor = 1.0;
    var sum = 0.0;
    for (var n = 1u; n < 40u; n += 1u) {
        factor *= -x / f32(n);
        let term = factor / (a + f32(n));
        sum += term;
        if abs(term) < 3e-8 * abs(sum) {
            break;
        }
    }
    let exponent = a * log_f32(x) - lgamma_next_f32(a);
    return -expm1_f32(exponent) - exp_f32(exponent) * a * sum;
}

fn temme_0_f32(eta: f32) -> vec2<f32> {
    var s = vec2<f32>(3.91926318e-05, 0.0);
    s = s * eta + vec2<f32>(-1.78755144e-04, s.x);
    s = s * eta + vec2<f32>(3.52733686e-04, s.x);
    s = s * eta + vec2<f32>(1.15740741e-03, s.x);
    s = s * eta + vec2<f32>(-1.48148148e-02, s.x);
    s = s * eta + vec2<f32>(8.33333333e-02, s.x);
    s = s * eta + vec2<f32>(-3.33333333e-1, s.x);
    return s;
}

fn temme_1_f32(eta: f32) -> vec2<f32> {
    var s = vec2<f32>(2.05761317e-04, 0.0);
    s = s * eta + vec2<f32>(-9.90226337e-04, s.x);
    s = s * eta + vec2<f32>(2.64550265e-03, s.x);
    s = s * eta + vec2<f32>(-3.47222222e-03, s.x);
    s = s * eta + vec2<f32>(-1.85185185e-03, s.x);
    return s;
}

fn temme_2_f32(eta: f32) -> vec2<f32> {
    var s = vec2<f32>(7.71604938e-04, 0.0);
    s = s * eta + vec2<f32>(-2.68132716e-03, s.x);
    s = s * eta + vec2<f32>(4.13359788e-03, s.x);
    return s;
}

fn temme_3_f32(eta: f32) -> vec2<f32> {
    var s = vec2<f32>(6.49434156e-04, 0.0);
    return s;
}

// The sum of Temme's series, its derivative by eta, and by a with eta kept.
fn temme_f32(a: f32, eta: f32) -> vec3<f32> {
    let r = 1.0 / a;
    var s = temme_3_f32(eta);
    var by_a = s.x * 3.0;
    let s_2 = temme_2_f32(eta);
    s = s * r + s_2;
    by_a = by_a * r + s_2.x * 2.0;
    let s_1 = temme_1_f32(eta);
    s = s * r + s_1;
    by_a = by_a * r + s_1.x * 1.0;
    let s_0 = temme_0_f32(eta);
    s = s * r + s_0;
    by_a = by_a * r + s_0.x * 0.0;
    return vec3<f32>(s, -by_a * r);
}

fn uses_temme_f32(a: f32, x: f32) -> bool {
    return a > 20.0 && abs(x - a) < 0.3 * a;
}

// P(a, x), or Q(a, x) when `upper`.
fn gamma_temme_f32(a: f32, x: f32, upper: bool) -> f32 {
    let m = (x - a) / a;
    let phi = log1p_rest_f32(m);
    let eta = copy_sign_f32(sqrt(max(-2.0 * phi, 0.0)), m);
    let rest = exp_f32(a * phi) / sqrt(6.28318531 * a) * temme_f32(a, eta).x;
    let s = eta * sqrt(0.5 * a);
    return select(0.5 * erfc_f32(-s) - rest, 0.5 * erfc_f32(s) + rest, upper);
}

// P(a, x), or Q(a, x) when `upper`, for finite a > 0 and x > 0.
fn gamma_incomplete_f32(a: f32, x: f32, upper: bool) -> f32 {
    if uses_temme_f32(a, x) {
        return gamma_temme_f32(a, x, upper);
    }
    let density = gamma_density_f32(a, x);
    if density == 0.0 && a >= 1.0 {
        return select(0.0, 1.0, (x < a) == upper);
    }
    var value: f32;
    var is_upper = false;
    if x > 1.1 && x > a {
        value = a * density * gamma_fraction_f32(a, x).x;
        is_upper = true;
    } else if upper && a < 1.0 {
        value = gamma_upper_small_f32(a, x);
        is_upper = true;
    } else {
        value = density * gamma_series_f32(a, x).x;
    }
    return select(1.0 - value, value, is_upper == upper);
}

// The results at the infinities are TensorFlow's.
fn igamma_f32(a: f32, x: f32) -> f32 {
    if x == 0.0 {
        return 0.0;
    }
    if !(x > 0.0) || !(a > 0.0) {
        return nan_like_f32(x);
    }
    if is_inf_f32(a) || is_inf_f32(x) {
        return select(1.0, 0.0, is_inf_f32(a));
    }
    return gamma_incomplete_f32(a, x, false);
}

fn igammac_f32(a: f32, x: f32) -> f32 {
    if !(x >= 0.0) || !(a > 0.0) {
        return nan_like_f32(x);
    }
    if x == 0.0 {
        return 1.0;
    }
    if is_inf_f32(x) {
        return 0.0;
    }
    if is_inf_f32(a) {
        return 1.0;
    }
    return gamma_incomplete_f32(a, x, true);
}

// The derivative of P(a, x) by a over the density x^a exp(-x) / gamma(a + 1), for finite a > 0 and
// x > 0.
fn gamma_slope_f32(a: f32, x: f32) -> f32 {
    if uses_temme_f32(a, x) {
        let m = (x - a) / a;
        let phi = log1p_rest_f32(m);
        let eta = copy_sign_f32(sqrt(max(-2.0 * phi, 0.0)), m);
        // m / eta tends to 1.
        var ratio = 1.0 + eta * 0.333333333;
        if abs(m) > 1e-3 {
            ratio = m / eta;
        }
        let t = temme_f32(a, eta);
        // d eta / da = -ratio / a
        let slope = 0.5 * eta - ratio - t.x * (log1p_f32(m) - 0.5 / a) + t.y * ratio / a - t.z;
        return slope * exp_f32(stirling_f32(a));
    }
    if x > 1.1 && x > a {
        let f = gamma_fraction_f32(a, x);
        return -a * ((log_f32(x) - digamma_f32(a)) * f.x + f.y);
    }
    let s = gamma_series_f32(a, x);
    return (log_f32(x) - digamma_f32(a + 1.0)) * s.x + s.y;
}

// Zero at x = 0 and at the infinities, as in TensorFlow.
fn igamma_grad_a_f32(a: f32, x: f32) -> f32 {
    if x == 0.0 {
        return 0.0;
    }
    if !(x > 0.0) || !(a > 0.0) {
        return nan_like_f32(x);
    }
    if is_inf_f32(a) || is_inf_f32(x) {
        return 0.0;
    }
    // The density may be subnormal where the derivative is not.
    let density = gamma_density_factors_f32(a, x);
    if density.x == 0.0 || density.y < 1e-30 {
        return 0.0;
    }
    return density.x * (density.y * gamma_slope_f32(a, x));
}

// The derivative by alpha of a sample for which P(alpha, sample) stays constant.
fn random_gamma_grad_f32(alpha: f32, sample: f32) -> f32 {
    if sample == 0.0 {
        return 0.0;
    }
    if !(sample > 0.0) || !(alpha > 0.0) {
        return nan_like_f32(sample);
    }
    if is_inf_f32(alpha) || is_inf_f32(sample) {
        return 0.0;
    }
    return -gamma_slope_f32(alpha, sample) * (sample / alpha);
}
