// Complex arithmetic and functions of parts in float32. Products are the plain formula, as in
// TensorFlow; quotients and absolute values neither overflow nor underflow on the way. Special
// values are those of C's Annex G.

fn complex_mul_f32(x: vec2<f32>, y: vec2<f32>) -> vec2<f32> {
    return vec2(x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x);
}

// A product that is 0 where a factor is, whatever the other factor.
fn complex_part_f32(a: f32, b: f32) -> f32 {
    let signed_zero = bitcast<f32>((bitcast<u32>(a) ^ bitcast<u32>(b)) & 0x80000000u);
    return select(a * b, signed_zero, a == 0.0 || b == 0.0);
}

fn complex_abs_f32(z: vec2<f32>) -> f32 {
    if is_inf_f32(z.x) || is_inf_f32(z.y) {
        return infinity_like_f32(1.0);
    }
    if is_nan_f32(z.x) || is_nan_f32(z.y) {
        return nan_like_f32(z.x);
    }
    let a = max(abs(z.x), abs(z.y));
    let b = min(abs(z.x), abs(z.y));
    if a == 0.0 {
        return 0.0;
    }
    // The number is scaled, since drivers may flush or overflow the reciprocal of an extreme
    // divisor.
    let scale = select(select(1.0, 5.9604645e-8, a > 1e30), 16777216.0, a < 1e-30);
    let q = (b * scale) / (a * scale);
    return a * sqrt(1.0 + q * q);
}

fn complex_div_f32(x: vec2<f32>, y: vec2<f32>) -> vec2<f32> {
    let largest = max(abs(y.x), abs(y.y));
    if largest == 0.0 && !is_nan_f32(y.x) && !is_nan_f32(y.y) {
        return infinity_like_f32(y.x) * x;
    }
    if (is_inf_f32(y.x) || is_inf_f32(y.y)) && is_finite_f32(x.x) && is_finite_f32(x.y) {
        let unit = vec2(copy_sign_f32(select(0.0, 1.0, is_inf_f32(y.x)), y.x),
            copy_sign_f32(select(0.0, 1.0, is_inf_f32(y.y)), y.y));
        return 0.0 * vec2(x.x * unit.x + x.y * unit.y, x.y * unit.x - x.x * unit.y);
    }
    // The divisor is scaled near 1, and the dividend so that its products stay finite.
    let scale = select(select(1.0, 5.421010862427522e-20, largest > 1e18), 18446744073709551616.0,
        largest < 1e-18);
    let half = select(1.0, 0.5, max(abs(x.x), abs(x.y)) > 1e38);
    let m = largest * scale;
    let d = (y * scale) / m;
    let n = x * half;
    let quotient = vec2(n.x * d.x + n.y * d.y, n.y * d.x - n.x * d.y) / (d.x * d.x + d.y * d.y);
    return ((quotient / m) * scale) / half;
}

// 1 / z; a zero has an infinite inverse of no direction.
fn complex_inverse_f32(z: vec2<f32>) -> vec2<f32> {
    if z.x == 0.0 && z.y == 0.0 {
        return vec2(infinity_like_f32(z.x), nan_like_f32(z.y));
    }
    return complex_div_f32(vec2(1.0, 0.0), z);
}

fn complex_sign_f32(z: vec2<f32>) -> vec2<f32> {
    if z.x == 0.0 && z.y == 0.0 {
        return vec2(0.0);
    }
    // The number is halved if the absolute value would overflow, and doubled if it would lose bits.
    let largest = max(abs(z.x), abs(z.y));
    let scale = select(select(1.0, 5.421010862427522e-20, largest > 1e18), 18446744073709551616.0,
        largest < 1e-18);
    let s = z * scale;
    return s / complex_abs_f32(s);
}

// exp(a) * b, without overflow where the product has none.
fn complex_exp_times_f32(a: f32, b: f32) -> f32 {
    if a > 88.0 && is_finite_f32(a) {
        let root = exp_f32(0.5 * a);
        return complex_part_f32(root, complex_part_f32(root, b));
    }
    return complex_part_f32(exp_f32(a), b);
}

fn complex_exp_f32(z: vec2<f32>) -> vec2<f32> {
    if is_inf_f32(z.x) && z.x > 0.0 && !is_finite_f32(z.y) {
        return vec2(z.x, nan_like_f32(z.y));
    }
    if z.y == 0.0 {
        return vec2(exp_f32(z.x), z.y);
    }
    if is_inf_f32(z.x) && z.x < 0.0 {
        return vec2(0.0);
    }
    return vec2(complex_exp_times_f32(z.x, cos_f32(z.y)), complex_exp_times_f32(z.x, sin_f32(z.y)));
}

fn complex_sinh_f32(z: vec2<f32>) -> vec2<f32> {
    if is_inf_f32(z.x) && !is_finite_f32(z.y) {
        return vec2(z.x, nan_like_f32(z.y));
    }
    if abs(z.x) > 88.0 {
        return 0.5 * vec2(
            complex_exp_times_f32(abs(z.x), copy_sign_f32(1.0, z.x) * cos_f32(z.y)),
            complex_exp_times_f32(abs(z.x), sin_f32(z.y)),
        );
    }
    return vec2(complex_part_f32(sinh_f32(z.x), cos_f32(z.y)), complex_part_f32(cosh_f32(z.x),
        sin_f32(z.y)));
}

fn complex_cosh_f32(z: vec2<f32>) -> vec2<f32> {
    if is_inf_f32(z.x) && !is_finite_f32(z.y) {
        return vec2(abs(z.x), nan_like_f32(z.y));
    }
    if abs(z.x) > 88.0 {
        return 0.5 * vec2(
            complex_exp_times_f32(abs(z.x), cos_f32(z.y)),
            complex_exp_times_f32(abs(z.x), copy_sign_f32(1.0, z.x) * sin_f32(z.y)),
        );
    }
    return vec2(complex_part_f32(cosh_f32(z.x), cos_f32(z.y)), complex_part_f32(sinh_f32(z.x),
        sin_f32(z.y)));
}

// Kahan's formula: no cancellation, and no overflow beyond |re| = 11, where tanh is 1.
fn complex_tanh_f32(z: vec2<f32>) -> vec2<f32> {
    if abs(z.x) > 11.0 {
        let turn = select(4.0 * sin_f32(z.y) * cos_f32(z.y) * exp_f32(-2.0 * abs(z.x)), 0.0,
            !is_finite_f32(z.y));
        return vec2(copy_sign_f32(1.0, z.x), turn);
    }
    let t = tan_f32(z.y);
    let beta = 1.0 + t * t;
    let s = sinh_f32(z.x);
    let rho = sqrt(1.0 + s * s);
    let bottom = 1.0 + beta * s * s;
    return vec2(select(beta * rho * s / bottom, z.x, z.x == 0.0), select(t / bottom, z.y,
        z.y == 0.0));
}

fn complex_sin_f32(z: vec2<f32>) -> vec2<f32> {
    let w = complex_sinh_f32(vec2(-z.y, z.x));
    return vec2(w.y, -w.x);
}

fn complex_cos_f32(z: vec2<f32>) -> vec2<f32> {
    return complex_cosh_f32(vec2(-z.y, z.x));
}

fn complex_tan_f32(z: vec2<f32>) -> vec2<f32> {
    let w = complex_tanh_f32(vec2(-z.y, z.x));
    return vec2(w.y, -w.x);
}

fn complex_log_abs_f32(z: vec2<f32>) -> f32 {
    let a = max(abs(z.x), abs(z.y));
    let b = min(abs(z.x), abs(z.y));
    if a == 0.0 || !is_finite_f32(z.x) || !is_finite_f32(z.y) {
        return log_f32(complex_abs_f32(z));
    }
    if a > 0.5 && a < 2.0 {
        return 0.5 * log1p_f32((a - 1.0) * (a + 1.0) + b * b);
    }
    let scale = select(select(1.0, 5.9604645e-8, a > 1e30), 16777216.0, a < 1e-30);
    let q = (b * scale) / (a * scale);
    return log_f32(a) + 0.5 * log1p_f32(q * q);
}

fn complex_log_f32(z: vec2<f32>) -> vec2<f32> {
    return vec2(complex_log_abs_f32(z), atan2_f32(z.y, z.x));
}

fn complex_log1p_f32(z: vec2<f32>) -> vec2<f32> {
    if max(abs(z.x), abs(z.y)) < 0.5 {
        return vec2(0.5 * log1p_f32(2.0 * z.x + (z.x * z.x + z.y * z.y)), atan2_f32(z.y,
            1.0 + z.x));
    }
    return complex_log_f32(vec2(1.0 + z.x, z.y));
}
