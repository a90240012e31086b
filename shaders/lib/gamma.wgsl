// log|gamma(x)| and its derivative. Within 4 ulp for x > 0 and, near the zeros, an absolute error
// of some 1e-6.

// lgamma(z) for 1.5 <= z < 3, given `product` = (z - 1)(z - 2), which callers have without loss,
// and w = z - 2.25.
fn lgamma_core_f32(product: f32, w: f32) -> f32 {
    var s = -3.690594216e-05;
    s = s * w + 8.865262629e-05;
    s = s * w - 1.685116383e-04;
    s = s * w + 4.307205976e-04;
    s = s * w - 1.142296104e-03;
    s = s * w + 3.043169477e-03;
    s = s * w - 8.463892134e-03;
    s = s * w + 2.526820837e-02;
    s = s * w - 8.588085129e-02;
    s = s * w + 3.995894893e-01;
    return product * s;
}

fn lgamma_positive_f32(x: f32) -> f32 {
    if x < 0.5 {
        return lgamma_core_f32((x + 1.0) * x, x - 0.25) - (log_f32(x) + log1p_f32(x));
    }
    if x < 1.5 {
        return lgamma_core_f32(x * (x - 1.0), x - 1.25) - log_f32(x);
    }
    if x < 8.0 {
        var z = x;
        var product = 1.0;
        for (var k = 0u; k < 6u && z >= 3.0; k += 1u) {
            z -= 1.0;
            product *= z;
        }
        return log_f32(product) + lgamma_core_f32((z - 1.0) * (z - 2.0), z - 2.25);
    }
    // Stirling.
    let r = 1.0 / x;
    let rest = r * (8.33333333e-2 - r * r * (2.77777778e-3 - r * r * 7.93650794e-4));
    return (x - 0.5) * (log_f32(x) - 1.0) + (0.418938533 + rest);
}

// sin(pi f) and cos(pi f) for 0 <= f <= 1/2.
fn sin_cos_pi_f32(f: f32) -> vec2<f32> {
    if f <= 0.25 {
        let t = 3.14159265 * f;
        return vec2(sin_small_f32(t, 0.0), cos_small_f32(t, 0.0));
    }
    let t = 3.14159265 * (0.5 - f);
    return vec2(cos_small_f32(t, 0.0), sin_small_f32(t, 0.0));
}

fn lgamma_f32(x: f32) -> f32 {
    if is_nan_f32(x) {
        return x;
    }
    if is_inf_f32(x) {
        return infinity_like_f32(1.0);
    }
    if x > 0.0 {
        return lgamma_positive_f32(x);
    }
    let a = -x;
    let f = abs(a - round(a));
    if f == 0.0 {
        return infinity_like_f32(1.0);
    }
    if a < 1e-3 {
        // gamma(x) = gamma(1 + x) / x
        return -0.577215665 * x + 0.822467033 * x * x - log_f32(a);
    }
    return 1.14472989 - log_f32(a * sin_cos_pi_f32(f).x) - lgamma_positive_f32(a);
}

fn digamma_positive_f32(x: f32) -> f32 {
    var z = x;
    var sum = 0.0;
    for (var k = 0u; k < 8u && z < 8.0; k += 1u) {
        sum -= 1.0 / z;
        z += 1.0;
    }
    let r = 1.0 / z;
    let s = r * r;
    return sum + (log_f32(z) - 0.5 * r - s * (8.33333333e-2 - s * (8.33333333e-3 - s
        * 3.96825397e-3)));
}

// -inf at 0, NaN at the negative integers, as in TensorFlow since 2.22; earlier versions give NaN
// at 0.
fn digamma_f32(x: f32) -> f32 {
    if is_nan_f32(x) || bitcast<u32>(x) == 0x7f800000u {
        return x;
    }
    if x > 0.0 {
        return digamma_positive_f32(x);
    }
    if x == 0.0 {
        return infinity_like_f32(-1.0);
    }
    let f = x - round(x);
    if is_inf_f32(x) || f == 0.0 {
        return nan_like_f32(x);
    }
    let circle = sin_cos_pi_f32(abs(f));
    return digamma_positive_f32(1.0 - x) - copy_sign_f32(3.14159265 * circle.y / circle.x, f);
}
