// Hurwitz' zeta function and the polygamma functions.

// zeta(x, q) for finite x > 1 and q > 0: the first ten terms, then Euler and Maclaurin's formula.
fn zeta_positive_f64(x: f64, q: f64) -> f64 {
    var sum = 0.0lf;
    var a = q;
    var power = 0.0lf;
    for (var k = 0u; k < rounds(10u); k += 1u) {
        a = select(a + 1.0lf, q, k == 0u);
        power = pow_f64(a, -x);
        sum += power;
    }
    if power == 0.0lf || !is_finite_f64(sum) {
        return sum;
    }
    sum += power * (a / (x - 1.0lf) - 0.5lf);
    // B(2k) / (2k)! x (x + 1) ... (x + 2k - 2) a^(1 - x - 2k)
    let r = 1.0lf / a;
    var factor = power * x * r;
    sum += factor * 8.33333333333333333e-02lf;
    factor *= ((x + 1.0lf) * r) * ((x + 2.0lf) * r);
    sum -= factor * 1.38888888888888889e-03lf;
    factor *= ((x + 3.0lf) * r) * ((x + 4.0lf) * r);
    sum += factor * 3.30687830687830688e-05lf;
    factor *= ((x + 5.0lf) * r) * ((x + 6.0lf) * r);
    sum -= factor * 8.2671957671957672e-07lf;
    factor *= ((x + 7.0lf) * r) * ((x + 8.0lf) * r);
    sum += factor * 2.0876756987868099e-08lf;
    factor *= ((x + 9.0lf) * r) * ((x + 10.0lf) * r);
    sum -= factor * 5.28419013868749318e-10lf;
    factor *= ((x + 11.0lf) * r) * ((x + 12.0lf) * r);
    sum += factor * 1.33825365306846788e-11lf;
    factor *= ((x + 13.0lf) * r) * ((x + 14.0lf) * r);
    sum -= factor * 3.38968029632258287e-13lf;
    factor *= ((x + 15.0lf) * r) * ((x + 16.0lf) * r);
    sum += factor * 8.58606205627784456e-15lf;
    factor *= ((x + 17.0lf) * r) * ((x + 18.0lf) * r);
    sum -= factor * 2.17486869855806187e-16lf;
    factor *= ((x + 19.0lf) * r) * ((x + 20.0lf) * r);
    sum += factor * 5.50900282836022952e-18lf;
    factor *= ((x + 21.0lf) * r) * ((x + 22.0lf) * r);
    sum -= factor * 1.39544646858125233e-19lf;
    return sum;
}

// At the poles the result is infinity where it has one sign, else NaN; NaN for x < 1, as in
// TensorFlow.
fn zeta_f64(x: f64, q: f64) -> f64 {
    if x == 1.0lf {
        return infinity_like_f64(1.0lf);
    }
    if !(x > 1.0lf) || is_nan_f64(q) {
        return nan_like_f64(x);
    }
    let is_even = is_inf_f64(x) || floor(0.5lf * x) == 0.5lf * x;
    if q <= 0.0lf && (is_inf_f64(q) || floor(q) == q) {
        return select(nan_like_f64(x), infinity_like_f64(1.0lf), is_even);
    }
    if q < 0.0lf && floor(x) != x {
        return nan_like_f64(x);
    }
    if is_inf_f64(q) {
        return 0.0lf;
    }
    if is_inf_f64(x) {
        return select(select(0.0lf, 1.0lf, q == 1.0lf), infinity_like_f64(1.0lf), q < 1.0lf);
    }
    // The terms of negative bases are two functions of positive ones: those from q - floor(q) on,
    // those below with alternating signs, without those from 1 - q on. One call, since it is long.
    let count = select(rounds(3u), 1u, q > 0.0lf);
    var start = select(q - floor(q), q, q > 0.0lf);
    var sum = 0.0lf;
    for (var k = 0u; k < count; k += 1u) {
        let part = zeta_positive_f64(x, start);
        sum += select(-part, part, k == 0u || (k == 1u) == is_even);
        start = select((floor(q) + 1.0lf) - q, 1.0lf - q, k == 1u);
    }
    return sum;
}

// The n-th derivative of digamma for whole n.
fn polygamma_f64(n: f64, x: f64) -> f64 {
    if !(n >= 0.0lf) || (floor(n) != n && !is_inf_f64(n)) {
        return nan_like_f64(x);
    }
    if n == 0.0lf {
        // NaN also at 0, unlike Digamma itself.
        return select(digamma_f64(x), nan_like_f64(x), x == 0.0);
    }
    let sign = select(1.0lf, -1.0lf, floor(0.5lf * n) == 0.5lf * n && !is_inf_f64(n));
    let zeta = zeta_f64(n + 1.0lf, x);
    // Larger factorials overflow, and infinity times 0 is NaN, as in TensorFlow.
    var factorial = infinity_like_f64(1.0lf);
    if n <= 170.0lf {
        factorial = 1.0lf;
        for (var k = 2u; k <= u32(n); k += 1u) {
            factorial *= f64(k);
        }
    }
    if is_inf_f64(factorial) && abs(zeta) < 2.2250738585072014e-308lf {
        return nan_like_f64(x);
    }
    return sign * (factorial * zeta);
}
