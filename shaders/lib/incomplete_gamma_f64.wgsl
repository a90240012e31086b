// The incomplete gamma functions and their derivatives by a: power series, Legendre's continued
// fraction, and Temme's expansion where both would be long. Loops end when a term no longer counts,
// or after 2000 terms.

// ln gamma(a + 1) / (a (a - 1)).
fn lgamma_quotient_f64(a: f64) -> f64 {
    let t = a * 2.0lf - 1.0lf;
    var s = 1.15861152951572777e-11lf;
    s = s * t - 3.5364743381188197e-11lf;
    s = s * t + 5.02582220956093459e-11lf;
    s = s * t - 1.63815967346484253e-10lf;
    s = s * t + 6.56640381926311172e-10lf;
    s = s * t - 2.07352677585248935e-09lf;
    s = s * t + 6.43026072763696563e-09lf;
    s = s * t - 2.05773452544719824e-08lf;
    s = s * t + 6.62387807726530068e-08lf;
    s = s * t - 2.13884528902629068e-07lf;
    s = s * t + 6.94842806418631189e-07lf;
    s = s * t - 2.27424090341405441e-06lf;
    s = s * t + 7.51139185564188294e-06lf;
    s = s * t - 2.50943298640781949e-05lf;
    s = s * t + 8.51009037349943131e-05lf;
    s = s * t - 2.94550701398984947e-04lf;
    s = s * t + 1.04981866445474015e-03lf;
    s = s * t - 3.91356093763176886e-03lf;
    s = s * t + 1.57278502686410948e-02lf;
    s = s * t - 7.29799479571529671e-02lf;
    s = s * t + 4.8312895054098089e-1lf;
    return s;
}

// ln gamma(a + 1) for 0 <= a <= 1.
fn lgamma_next_f64(a: f64) -> f64 {
    return a * (a - 1.0lf) * lgamma_quotient_f64(a);
}

// gamma(a + 1) for 0 <= a <= 30.
fn gamma_next_f64(a: f64) -> f64 {
    var z = a;
    var product = 1.0lf;
    for (var k = 0u; k < 32u && z >= 1.0lf; k += 1u) {
        product *= z;
        z -= 1.0lf;
    }
    return product * exp_f64(lgamma_next_f64(z));
}

// The correction to Stirling's formula for ln gamma, a >= 8.
fn stirling_f64(a: f64) -> f64 {
    let r = 1.0lf / a;
    let z = r * r;
    var s = -2.95506535947712418e-02lf;
    s = s * z + 6.41025641025641026e-03lf;
    s = s * z - 1.91752691752691753e-03lf;
    s = s * z + 8.41750841750841751e-04lf;
    s = s * z - 5.95238095238095238e-04lf;
    s = s * z + 7.93650793650793651e-04lf;
    s = s * z - 2.77777777777777778e-03lf;
    s = s * z + 8.33333333333333333e-02lf;
    return s * r;
}

// ln(1 + m) - m.
fn log1p_rest_f64(m: f64) -> f64 {
    if m <= -0.5lf || m >= 1.0lf {
        return log1p_f64(m) - m;
    }
    let r = m / (2.0lf + m);
    let z = r * r;
    var s = 3.0303030303030303e-02lf;
    s = s * z + 3.22580645161290323e-02lf;
    s = s * z + 3.44827586206896552e-02lf;
    s = s * z + 3.7037037037037037e-02lf;
    s = s * z + 4.0e-02lf;
    s = s * z + 4.34782608695652174e-02lf;
    s = s * z + 4.7619047619047619e-02lf;
    s = s * z + 5.26315789473684211e-02lf;
    s = s * z + 5.88235294117647059e-02lf;
    s = s * z + 6.66666666666666667e-02lf;
    s = s * z + 7.69230769230769231e-02lf;
    s = s * z + 9.09090909090909091e-02lf;
    s = s * z + 1.11111111111111111e-1lf;
    s = s * z + 1.42857142857142857e-1lf;
    s = s * z + 2.0e-1lf;
    s = s * z + 3.33333333333333333e-1lf;
    return r * (2.0lf * z * s - m);
}

// x^a exp(-x) / gamma(a + 1) for x > 0 and a > 0.
fn gamma_density_f64(a: f64, x: f64) -> f64 {
    if a >= 12.0lf {
        let m = (x - a) / a;
        let scale = exp_f64(-stirling_f64(a)) / sqrt(6.28318530717958648lf * a);
        if (m < -0.5lf || m > 1.0lf) && a < 600.0lf && x < 700.0lf {
            // The square root, whose factors stay in range.
            let root = pow_f64(x / a, 0.5lf * a) * exp_f64(0.5lf * (a - x));
            return root * root * scale;
        }
        return exp_f64(a * log1p_rest_f64(m)) * scale;
    }
    let exponent = a * log_f64(x);
    if abs(exponent) < 700.0lf && x < 700.0lf {
        return pow_f64(x, a) * exp_f64(-x) / gamma_next_f64(a);
    }
    return exp_f64(exponent - x) / gamma_next_f64(a);
}

// P(a, x) / density by its power series, and the same sum's derivative by a.
fn gamma_series_f64(a: f64, x: f64) -> vec2<f64> {
    var term = 1.0lf;
    var harmonic = 0.0lf;
    var sum = vec2<f64>(1.0lf, 0.0lf);
    for (var n = 1u; n < 2000u; n += 1u) {
        let d = a + f64(n);
        term *= x / d;
        harmonic -= 1.0lf / d;
        sum += term * vec2<f64>(1.0lf, harmonic);
        if term < 5e-17lf * sum.x {
            break;
        }
    }
    return sum;
}

// Q(a, x) / (a density) by its continued fraction for x > 1, and the derivative by a. The
// convergents' numerators and denominators grow together and are scaled down together.
fn gamma_fraction_f64(a: f64, x: f64) -> vec2<f64> {
    if x > 2e8lf * (a + 1.0lf) {
        return vec2<f64>((1.0lf + (a - 1.0lf) / x) / x, 1.0lf / x / x);
    }
    var y = 1.0lf - a;
    var z = x + y + 1.0lf;
    // Numerator, denominator, and their derivatives.
    var before = vec4<f64>(1.0lf / (z * x), 1.0lf / z, 0.0lf, 0.0lf);
    var last = vec4<f64>((x + 1.0lf) / (z * x), 1.0lf, 0.0lf, -1.0lf / z);
    var value = last.x / last.y;
    var slope = (last.z - value * last.w) / last.y;
    for (var n = 1u; n < 2000u; n += 1u) {
        let c = f64(n);
        y += 1.0lf;
        z += 2.0lf;
        let yc = y * c;
        var next = last * z - before * yc;
        next.z += c * before.x - last.x;
        next.w += c * before.y - last.y;
        before = last;
        last = next;
        if last.y != 0.0lf {
            let better = last.x / last.y;
            let change = abs(better - value);
            value = better;
            let slope_before = slope;
            slope = (last.z - value * last.w) / last.y;
            if change <= 2e-16lf * abs(value)
                && abs(slope - slope_before) <= 5.0lf * 2e-16lf * abs(slope) {
                break;
            }
        }
        if abs(last.x) > 1e140lf || abs(last.y) > 1e140lf {
            before *= 1.0lf / 1e140lf;
            last *= 1.0lf / 1e140lf;
        }
    }
    return vec2<f64>(value, slope);
}

// Q(a, x) for small x and a, where 1 - P cancels.
fn gamma_upper_small_f64(a: f64, x: f64) -> f64 {
    var factor = 1.0lf;
    var sum = 0.0lf;
    for (var n = 1u; n < 40u; n += 1u) {
        factor *= -x / f64(n);
        let term = factor / (a + f64(n));
        sum += term;
        if abs(term) < 5e-17lf * abs(sum) {
            break;
        }
    }
    let exponent = a * log_f64(x) - lgamma_next_f64(a);
    return -expm1_f64(exponent) - exp_f64(exponent) * a * sum;
}

fn temme_0_f64(eta: f64) -> vec2<f64> {
    var s = vec2<f64>(9.14769958223679023e-10lf, 0.0lf);
    s = s * eta + vec2<f64>(-4.38203601845335319e-09lf, s.x);
    s = s * eta + vec2<f64>(1.0261809784240308e-08lf, s.x);
    s = s * eta + vec2<f64>(6.70785354340149858e-09lf, s.x);
    s = s * eta + vec2<f64>(-1.76659527368260793e-07lf, s.x);
    s = s * eta + vec2<f64>(8.29671134095308601e-07lf, s.x);
    s = s * eta + vec2<f64>(-1.85406221071515996e-06lf, s.x);
    s = s * eta + vec2<f64>(-2.18544851067999216e-06lf, s.x);
    s = s * eta + vec2<f64>(3.91926317852243778e-05lf, s.x);
    s = s * eta + vec2<f64>(-1.78755144032921811e-04lf, s.x);
    s = s * eta + vec2<f64>(3.527336860670194e-04lf, s.x);
    s = s * eta + vec2<f64>(1.15740740740740741e-03lf, s.x);
    s = s * eta + vec2<f64>(-1.48148148148148148e-02lf, s.x);
    s = s * eta + vec2<f64>(8.33333333333333333e-02lf, s.x);
    s = s * eta + vec2<f64>(-3.33333333333333333e-1lf, s.x);
    return s;
}

fn temme_1_f64(eta: f64) -> vec2<f64> {
    var s = vec2<f64>(1.19516285997781473e-08lf, 0.0lf);
    s = s * eta + vec2<f64>(-5.75254560351770496e-08lf, s.x);
    s = s * eta + vec2<f64>(1.37863344691572096e-07lf, s.x);
    s = s * eta + vec2<f64>(4.64712780280743434e-09lf, s.x);
    s = s * eta + vec2<f64>(-1.6120900894563446e-06lf, s.x);
    s = s * eta + vec2<f64>(7.64916091608111008e-06lf, s.x);
    s = s * eta + vec2<f64>(-1.80985503344899778e-05lf, s.x);
    s = s * eta + vec2<f64>(-4.01877572016460905e-07lf, s.x);
    s = s * eta + vec2<f64>(2.05761316872427984e-04lf, s.x);
    s = s * eta + vec2<f64>(-9.90226337448559671e-04lf, s.x);
    s = s * eta + vec2<f64>(2.6455026455026455e-03lf, s.x);
    s = s * eta + vec2<f64>(-3.47222222222222222e-03lf, s.x);
    s = s * eta + vec2<f64>(-1.85185185185185185e-03lf, s.x);
    return s;
}

fn temme_2_f64(eta: f64) -> vec2<f64> {
    var s = vec2<f64>(-1.40925299108675211e-08lf, 0.0lf);
    s = s * eta + vec2<f64>(-2.0477098421990866e-10lf, s.x);
    s = s * eta + vec2<f64>(1.42806142060642418e-07lf, s.x);
    s = s * eta + vec2<f64>(-6.29899213838005502e-07lf, s.x);
    s = s * eta + vec2<f64>(1.37219573090629332e-06lf, s.x);
    s = s * eta + vec2<f64>(3.42357873409613807e-08lf, s.x);
    s = s * eta + vec2<f64>(-1.27606351886187277e-05lf, s.x);
    s = s * eta + vec2<f64>(5.29234488291201254e-05lf, s.x);
    s = s * eta + vec2<f64>(-1.07366532263651605e-04lf, s.x);
    s = s * eta + vec2<f64>(2.00938786008230453e-06lf, s.x);
    s = s * eta + vec2<f64>(7.71604938271604938e-04lf, s.x);
    s = s * eta + vec2<f64>(-2.68132716049382716e-03lf, s.x);
    s = s * eta + vec2<f64>(4.1335978835978836e-03lf, s.x);
    return s;
}

fn temme_3_f64(eta: f64) -> vec2<f64> {
    var s = vec2<f64>(8.09946490538808236e-08lf, 0.0lf);
    s = s * eta + vec2<f64>(-1.69584040919302773e-07lf, s.x);
    s = s * eta + vec2<f64>(-2.78610802915281422e-11lf, s.x);
    s = s * eta + vec2<f64>(1.42309007324358839e-06lf, s.x);
    s = s * eta + vec2<f64>(-5.67495282699159657e-06lf, s.x);
    s = s * eta + vec2<f64>(1.10826541153473024e-05lf, s.x);
    s = s * eta + vec2<f64>(-2.39650511386729665e-07lf, s.x);
    s = s * eta + vec2<f64>(-7.56180167188397641e-05lf, s.x);
    s = s * eta + vec2<f64>(2.67720632062838853e-04lf, s.x);
    s = s * eta + vec2<f64>(-4.69189494395255712e-04lf, s.x);
    s = s * eta + vec2<f64>(2.29472093621399177e-04lf, s.x);
    s = s * eta + vec2<f64>(6.49434156378600823e-04lf, s.x);
    return s;
}

fn temme_4_f64(eta: f64) -> vec2<f64> {
    var s = vec2<f64>(-2.29293483400080487e-07lf, 0.0lf);
    s = s * eta + vec2<f64>(8.90750753220530969e-07lf, s.x);
    s = s * eta + vec2<f64>(-1.6954149536558306e-06lf, s.x);
    s = s * eta + vec2<f64>(2.5074972262375328e-10lf, s.x);
    s = s * eta + vec2<f64>(1.13757269706784191e-05lf, s.x);
    s = s * eta + vec2<f64>(-3.96836504717943466e-05lf, s.x);
    s = s * eta + vec2<f64>(6.64149821546512219e-05lf, s.x);
    s = s * eta + vec2<f64>(-1.46384525788434182e-06lf, s.x);
    s = s * eta + vec2<f64>(-2.9907248030319018e-04lf, s.x);
    s = s * eta + vec2<f64>(7.84039221720066627e-04lf, s.x);
    s = s * eta + vec2<f64>(-8.61888290916711699e-04lf, s.x);
    return s;
}

fn temme_5_f64(eta: f64) -> vec2<f64> {
    var s = vec2<f64>(-2.29148117650809517e-06lf, 0.0lf);
    s = s * eta + vec2<f64>(8.01847025633420154e-06lf, s.x);
    s = s * eta + vec2<f64>(-1.35940481897686933e-05lf, s.x);
    s = s * eta + vec2<f64>(1.41906292064396701e-07lf, s.x);
    s = s * eta + vec2<f64>(6.79778047793720784e-05lf, s.x);
    s = s * eta + vec2<f64>(-1.99325705161888477e-04lf, s.x);
    s = s * eta + vec2<f64>(2.77275324495939208e-04lf, s.x);
    s = s * eta + vec2<f64>(-6.97281375836585777e-05lf, s.x);
    s = s * eta + vec2<f64>(-3.3679855336635815e-04lf, s.x);
    return s;
}

fn temme_6_f64(eta: f64) -> vec2<f64> {
    var s = vec2<f64>(-1.83291165828433756e-05lf, 0.0lf);
    s = s * eta + vec2<f64>(5.61168275310624965e-05lf, s.x);
    s = s * eta + vec2<f64>(-8.15396936756196875e-05lf, s.x);
    s = s * eta + vec2<f64>(7.90235323266032787e-07lf, s.x);
    s = s * eta + vec2<f64>(2.70878209671804483e-04lf, s.x);
    s = s * eta + vec2<f64>(-5.92166437353693883e-04lf, s.x);
    s = s * eta + vec2<f64>(5.31307936463992223e-04lf, s.x);
    return s;
}

fn temme_7_f64(eta: f64) -> vec2<f64> {
    var s = vec2<f64>(2.77444515115636442e-05lf, 0.0lf);
    s = s * eta + vec2<f64>(-1.27410090954844854e-07lf, s.x);
    s = s * eta + vec2<f64>(-1.0976582244684731e-04lf, s.x);
    s = s * eta + vec2<f64>(2.81269515476323702e-04lf, s.x);
    s = s * eta + vec2<f64>(-3.34931610811422363e-04lf, s.x);
    s = s * eta + vec2<f64>(5.17179090826059219e-05lf, s.x);
    s = s * eta + vec2<f64>(3.44367606892377671e-04lf, s.x);
    return s;
}

fn temme_8_f64(eta: f64) -> vec2<f64> {
    var s = vec2<f64>(1.66448466420675478e-04lf, 0.0lf);
    s = s * eta + vec2<f64>(-6.96909145842055197e-07lf, s.x);
    s = s * eta + vec2<f64>(-4.38297098541721005e-04lf, s.x);
    s = s * eta + vec2<f64>(8.3949872067208728e-04lf, s.x);
    s = s * eta + vec2<f64>(-6.52623918595309419e-04lf, s.x);
    return s;
}

fn temme_9_f64(eta: f64) -> vec2<f64> {
    var s = vec2<f64>(-6.40147526026275845e-04lf, 0.0lf);
    s = s * eta + vec2<f64>(6.78230883766732836e-04lf, s.x);
    s = s * eta + vec2<f64>(-7.20489541602001056e-05lf, s.x);
    s = s * eta + vec2<f64>(-5.9676129019274625e-04lf, s.x);
    return s;
}

fn temme_10_f64(eta: f64) -> vec2<f64> {
    var s = vec2<f64>(-1.91443849856547753e-03lf, 0.0lf);
    s = s * eta + vec2<f64>(1.33244544948006564e-03lf, s.x);
    return s;
}

// The sum of Temme's series, its derivative by eta, and by a with eta kept.
fn temme_f64(a: f64, eta: f64) -> vec3<f64> {
    let r = 1.0lf / a;
    var s = temme_10_f64(eta);
    var by_a = s.x * 10.0lf;
    let s_9 = temme_9_f64(eta);
    s = s * r + s_9;
    by_a = by_a * r + s_9.x * 9.0lf;
    let s_8 = temme_8_f64(eta);
    s = s * r + s_8;
    by_a = by_a * r + s_8.x * 8.0lf;
    let s_7 = temme_7_f64(eta);
    s = s * r + s_7;
    by_a = by_a * r + s_7.x * 7.0lf;
    let s_6 = temme_6_f64(eta);
    s = s * r + s_6;
    by_a = by_a * r + s_6.x * 6.0lf;
    let s_5 = temme_5_f64(eta);
    s = s * r + s_5;
    by_a = by_a * r + s_5.x * 5.0lf;
    let s_4 = temme_4_f64(eta);
    s = s * r + s_4;
    by_a = by_a * r + s_4.x * 4.0lf;
    let s_3 = temme_3_f64(eta);
    s = s * r + s_3;
    by_a = by_a * r + s_3.x * 3.0lf;
    let s_2 = temme_2_f64(eta);
    s = s * r + s_2;
    by_a = by_a * r + s_2.x * 2.0lf;
    let s_1 = temme_1_f64(eta);
    s = s * r + s_1;
    by_a = by_a * r + s_1.x * 1.0lf;
    let s_0 = temme_0_f64(eta);
    s = s * r + s_0;
    by_a = by_a * r + s_0.x * 0.0lf;
    return vec3<f64>(s, -by_a * r);
}

fn uses_temme_f64(a: f64, x: f64) -> bool {
    return a > 20.0lf && abs(x - a) < 0.3lf * a;
}

// P(a, x), or Q(a, x) when `upper`.
fn gamma_temme_f64(a: f64, x: f64, upper: bool) -> f64 {
    let m = (x - a) / a;
    let phi = log1p_rest_f64(m);
    let eta = copy_sign_f64(sqrt(max(-2.0lf * phi, 0.0lf)), m);
    let rest = exp_f64(a * phi) / sqrt(6.28318530717958648lf * a) * temme_f64(a, eta).x;
    let s = eta * sqrt(0.5lf * a);
    return select(0.5lf * erfc_f64(-s) - rest, 0.5lf * erfc_f64(s) + rest, upper);
}

// P(a, x), or Q(a, x) when `upper`, for finite a > 0 and x > 0.
fn gamma_incomplete_f64(a: f64, x: f64, upper: bool) -> f64 {
    if uses_temme_f64(a, x) {
        return gamma_temme_f64(a, x, upper);
    }
    let density = gamma_density_f64(a, x);
    if density == 0.0lf && a >= 1.0lf {
        return select(0.0lf, 1.0lf, (x < a) == upper);
    }
    var value: f64;
    var is_upper = false;
    if x > 1.1lf && x > a {
        value = a * density * gamma_fraction_f64(a, x).x;
        is_upper = true;
    } else if upper && a < 1.0lf {
        value = gamma_upper_small_f64(a, x);
        is_upper = true;
    } else {
        value = density * gamma_series_f64(a, x).x;
    }
    return select(1.0lf - value, value, is_upper == upper);
}

// The results at the infinities are TensorFlow's.
fn igamma_f64(a: f64, x: f64) -> f64 {
    if x == 0.0lf {
        return 0.0lf;
    }
    if !(x > 0.0lf) || !(a > 0.0lf) {
        return nan_like_f64(x);
    }
    if is_inf_f64(a) || is_inf_f64(x) {
        return select(1.0lf, 0.0lf, is_inf_f64(a));
    }
    return gamma_incomplete_f64(a, x, false);
}

fn igammac_f64(a: f64, x: f64) -> f64 {
    if !(x >= 0.0lf) || !(a > 0.0lf) {
        return nan_like_f64(x);
    }
    if x == 0.0lf {
        return 1.0lf;
    }
    if is_inf_f64(x) {
        return 0.0lf;
    }
    if is_inf_f64(a) {
        return 1.0lf;
    }
    return gamma_incomplete_f64(a, x, true);
}

// The derivative of P(a, x) by a over the density x^a exp(-x) / gamma(a + 1), for finite a > 0 and
// x > 0.
fn gamma_slope_f64(a: f64, x: f64) -> f64 {
    if uses_temme_f64(a, x) {
        let m = (x - a) / a;
        let phi = log1p_rest_f64(m);
        let eta = copy_sign_f64(sqrt(max(-2.0lf * phi, 0.0lf)), m);
        // m / eta tends to 1.
        var ratio = 1.0lf + eta * 0.333333333333333333lf;
        if abs(m) > 1e-7lf {
            ratio = m / eta;
        }
        let t = temme_f64(a, eta);
        // d eta / da = -ratio / a
        let slope = 0.5lf * eta - ratio - t.x * (log1p_f64(m) - 0.5lf / a) + t.y * ratio / a - t.z;
        return slope * exp_f64(stirling_f64(a));
    }
    // One call, since each is long.
    let is_upper = x > 1.1lf && x > a;
    let logs = log_f64(x) - digamma_f64(select(a + 1.0lf, a, is_upper));
    if is_upper {
        let f = gamma_fraction_f64(a, x);
        return -a * (logs * f.x + f.y);
    }
    let s = gamma_series_f64(a, x);
    return logs * s.x + s.y;
}

// Zero at x = 0 and at the infinities, as in TensorFlow.
fn igamma_grad_a_f64(a: f64, x: f64) -> f64 {
    if x == 0.0lf {
        return 0.0lf;
    }
    if !(x > 0.0lf) || !(a > 0.0lf) {
        return nan_like_f64(x);
    }
    if is_inf_f64(a) || is_inf_f64(x) {
        return 0.0lf;
    }
    let density = gamma_density_f64(a, x);
    if density == 0.0lf {
        return 0.0lf;
    }
    return density * gamma_slope_f64(a, x);
}

// The derivative by alpha of a sample for which P(alpha, sample) stays constant.
fn random_gamma_grad_f64(alpha: f64, sample: f64) -> f64 {
    if sample == 0.0lf {
        return 0.0lf;
    }
    if !(sample > 0.0lf) || !(alpha > 0.0lf) {
        return nan_like_f64(sample);
    }
    if is_inf_f64(alpha) || is_inf_f64(sample) {
        return 0.0lf;
    }
    return -gamma_slope_f64(alpha, sample) * (sample / alpha);
}
