// Hurwitz' zeta function and the polygamma functions.

// a^-x, and 2^60 times as much where `scaled`.
fn zeta_power_f32(a: f32, x: f32, scaled: bool) -> f32 {
    let root = pow_f32(a, select(-x, -0.5 * x, scaled));
    return select(root, root * (root * 1.15292150e18), scaled);
}

// zeta(x, q) for finite x > 1 and q > 0. If the first term is small, all terms are scaled: the
// others may be subnormal.
fn zeta_positive_f32(x: f32, q: f32) -> f32 {
    var first = pow_f32(q, -x);
    let scaled = first < 1e-30;
    if scaled {
        first = zeta_power_f32(q, x, true);
    }
    return zeta_sum_f32(x, q, first, scaled) * select(1.0, 8.67361738e-19, scaled);
}

// The first ten terms, then Euler and Maclaurin's formula.
fn zeta_sum_f32(x: f32, q: f32, first: f32, scaled: bool) -> f32 {
    var sum = first;
    var a = q;
    var power = sum;
    for (var k = 0u; k < rounds(9u); k += 1u) {
        a += 1.0;
        power = zeta_power_f32(a, x, scaled);
        sum += power;
    }
    if power == 0.0 || !is_finite_f32(sum) {
        return sum;
    }
    sum += power * (a / (x - 1.0) - 0.5);
    // B(2k) / (2k)! x (x + 1) ... (x + 2k - 2) a^(1 - x - 2k)
    let r = 1.0 / a;
    var factor = power * x * r;
    sum += factor * 8.33333333e-02;
    factor *= ((x + 1.0) * r) * ((x + 2.0) * r);
    sum -= factor * 1.38888889e-03;
    factor *= ((x + 3.0) * r) * ((x + 4.0) * r);
    sum += factor * 3.30687831e-05;
    factor *= ((x + 5.0) * r) * ((x + 6.0) * r);
    sum -= factor * 8.26719577e-07;
    factor *= ((x + 7.0) * r) * ((x + 8.0) * r);
    sum += factor * 2.0876757e-08;
    factor *= ((x + 9.0) * r) * ((x + 10.0) * r);
    sum -= factor * 5.28419014e-10;
    return sum;
}

// At the poles the result is infinity where it has one sign, else NaN; NaN for x < 1, as in
// TensorFlow.
fn zeta_f32(x: f32, q: f32) -> f32 {
    if x == 1.0 {
        return infinity_like_f32(1.0);
    }
    if !(x > 1.0) || is_nan_f32(q) {
        return nan_like_f32(x);
    }
    let is_even = is_inf_f32(x) || floor(0.5 * x) == 0.5 * x;
    if q <= 0.0 && (is_inf_f32(q) || floor(q) == q) {
        return select(nan_like_f32(x), infinity_like_f32(1.0), is_even);
    }
    if q < 0.0 && floor(x) != x {
        return nan_like_f32(x);
    }
    if is_inf_f32(q) {
        return 0.0;
    }
    if is_inf_f32(x) {
        return select(select(0.0, 1.0, q == 1.0), infinity_like_f32(1.0), q < 1.0);
    }
    // The terms of negative bases are two functions of positive ones: those from q - floor(q) on,
    // those below with alternating signs, without those from 1 - q on. One call, since it is long.
    let count = select(rounds(3u), 1u, q > 0.0);
    var start = select(q - floor(q), q, q > 0.0);
    var sum = 0.0;
    for (var k = 0u; k < count; k += 1u) {
        let part = zeta_positive_f32(x, start);
        sum += select(-part, part, k == 0u || (k == 1u) == is_even);
        start = select((floor(q) + 1.0) - q, 1.0 - q, k == 1u);
    }
    return sum;
}

// The n-th derivative of digamma for whole n.
fn polygamma_f32(n: f32, x: f32) -> f32 {
    if !(n >= 0.0) || (floor(n) != n && !is_inf_f32(n)) {
        return nan_like_f32(x);
    }
    if n == 0.0 {
        // NaN also at 0, unlike Digamma itself.
        return select(digamma_f32(x), nan_like_f32(x), x == 0.0);
    }
    let sign = select(1.0, -1.0, floor(0.5 * n) == 0.5 * n && !is_inf_f32(n));
    let zeta = zeta_f32(n + 1.0, x);
    // Larger factorials overflow, and infinity times 0 is NaN, as in TensorFlow.
    var factorial = infinity_like_f32(1.0);
    if n <= 34.0 {
        factorial = 1.0;
        for (var k = 2u; k <= u32(n); k += 1u) {
            factorial *= f32(k);
        }
    }
    if is_inf_f32(factorial) && abs(zeta) < 1.1754944e-38 {
        return nan_like_f32(x);
    }
    return sign * (factorial * zeta);
}
