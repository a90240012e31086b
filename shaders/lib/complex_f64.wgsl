// The twin of `complex` for parts in float64. Products are the plain formula, as in TensorFlow;
// quotients and absolute values neither overflow nor underflow on the way. Special values are those
// of C's Annex G.

fn complex_mul_f64(x: vec2<f64>, y: vec2<f64>) -> vec2<f64> {
    return vec2(x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x);
}

// A product that is 0 where a factor is, whatever the other factor.
fn complex_part_f64(a: f64, b: f64) -> f64 {
    let signed_zero = bitcast<f64>((bitcast<u64>(a) ^ bitcast<u64>(b)) & 0x8000000000000000lu);
    return select(a * b, signed_zero, a == 0.0lf || b == 0.0lf);
}

fn complex_abs_f64(z: vec2<f64>) -> f64 {
    if is_inf_f64(z.x) || is_inf_f64(z.y) {
        return infinity_like_f64(1.0lf);
    }
    if is_nan_f64(z.x) || is_nan_f64(z.y) {
        return nan_like_f64(z.x);
    }
    let a = max(abs(z.x), abs(z.y));
    let b = min(abs(z.x), abs(z.y));
    if a == 0.0lf {
        return 0.0lf;
    }
    // The number is scaled, since drivers may flush or overflow the reciprocal of an extreme
    // divisor.
    let scale = select(select(1.0lf, 1.1102230246251565e-16lf, a > 1e290lf), 9007199254740992.0lf,
        a < 1e-290lf);
    let q = (b * scale) / (a * scale);
    return a * sqrt(1.0lf + q * q);
}

fn complex_div_f64(x: vec2<f64>, y: vec2<f64>) -> vec2<f64> {
    let largest = max(abs(y.x), abs(y.y));
    if largest == 0.0lf && !is_nan_f64(y.x) && !is_nan_f64(y.y) {
        return infinity_like_f64(y.x) * x;
    }
    if (is_inf_f64(y.x) || is_inf_f64(y.y)) && is_finite_f64(x.x) && is_finite_f64(x.y) {
        let unit = vec2(copy_sign_f64(select(0.0lf, 1.0lf, is_inf_f64(y.x)), y.x),
            copy_sign_f64(select(0.0lf, 1.0lf, is_inf_f64(y.y)), y.y));
        return 0.0lf * vec2(x.x * unit.x + x.y * unit.y, x.y * unit.x - x.x * unit.y);
    }
    // The divisor is scaled near 1, and the dividend so that its products stay finite.
    let scale = select(select(1.0lf, 7.458340731200207e-155lf, largest > 1e140lf),
        1.3407807929942597e154lf, largest < 1e-140lf);
    let half = select(1.0lf, 0.5lf, max(abs(x.x), abs(x.y)) > 1e307lf);
    let m = largest * scale;
    let d = (y * scale) / m;
    let n = x * half;
    let quotient = vec2(n.x * d.x + n.y * d.y, n.y * d.x - n.x * d.y) / (d.x * d.x + d.y * d.y);
    return ((quotient / m) * scale) / half;
}

// 1 / z; a zero has an infinite inverse of no direction.
fn complex_inverse_f64(z: vec2<f64>) -> vec2<f64> {
    if z.x == 0.0lf && z.y == 0.0lf {
        return vec2(infinity_like_f64(z.x), nan_like_f64(z.y));
    }
    return complex_div_f64(vec2<f64>(1.0lf, 0.0lf), z);
}

fn complex_sign_f64(z: vec2<f64>) -> vec2<f64> {
    if z.x == 0.0lf && z.y == 0.0lf {
        return vec2<f64>(0.0lf);
    }
    // The number is halved if the absolute value would overflow, and doubled if it would lose bits.
    let largest = max(abs(z.x), abs(z.y));
    let scale = select(select(1.0lf, 7.458340731200207e-155lf, largest > 1e140lf),
        1.3407807929942597e154lf, largest < 1e-140lf);
    let s = z * scale;
    return s / complex_abs_f64(s);
}

// exp(a) * b, without overflow where the product has none.
fn complex_exp_times_f64(a: f64, b: f64) -> f64 {
    if a > 709.0lf && is_finite_f64(a) {
        let root = exp_f64(0.5lf * a);
        return complex_part_f64(root, complex_part_f64(root, b));
    }
    return complex_part_f64(exp_f64(a), b);
}

fn complex_exp_f64(z: vec2<f64>) -> vec2<f64> {
    if is_inf_f64(z.x) && z.x > 0.0lf && !is_finite_f64(z.y) {
        return vec2(z.x, nan_like_f64(z.y));
    }
    if z.y == 0.0lf {
        return vec2(exp_f64(z.x), z.y);
    }
    if is_inf_f64(z.x) && z.x < 0.0lf {
        return vec2<f64>(0.0lf);
    }
    return vec2(complex_exp_times_f64(z.x, cos_f64(z.y)), complex_exp_times_f64(z.x, sin_f64(z.y)));
}

fn complex_sinh_f64(z: vec2<f64>) -> vec2<f64> {
    if is_inf_f64(z.x) && !is_finite_f64(z.y) {
        return vec2(z.x, nan_like_f64(z.y));
    }
    if abs(z.x) > 709.0lf {
        return 0.5lf * vec2(
            complex_exp_times_f64(abs(z.x), copy_sign_f64(1.0lf, z.x) * cos_f64(z.y)),
            complex_exp_times_f64(abs(z.x), sin_f64(z.y)),
        );
    }
    return vec2(complex_part_f64(sinh_f64(z.x), cos_f64(z.y)), complex_part_f64(cosh_f64(z.x),
        sin_f64(z.y)));
}

fn complex_cosh_f64(z: vec2<f64>) -> vec2<f64> {
    if is_inf_f64(z.x) && !is_finite_f64(z.y) {
        return vec2(abs(z.x), nan_like_f64(z.y));
    }
    if abs(z.x) > 709.0lf {
        return 0.5lf * vec2(
            complex_exp_times_f64(abs(z.x), cos_f64(z.y)),
            complex_exp_times_f64(abs(z.x), copy_sign_f64(1.0lf, z.x) * sin_f64(z.y)),
        );
    }
    return vec2(complex_part_f64(cosh_f64(z.x), cos_f64(z.y)), complex_part_f64(sinh_f64(z.x),
        sin_f64(z.y)));
}

// Kahan's formula: no cancellation, and no overflow beyond |re| = 20, where tanh is 1.
fn complex_tanh_f64(z: vec2<f64>) -> vec2<f64> {
    if abs(z.x) > 20.0lf {
        let turn = select(4.0lf * sin_f64(z.y) * cos_f64(z.y) * exp_f64(-2.0lf * abs(z.x)), 0.0lf,
            !is_finite_f64(z.y));
        return vec2(copy_sign_f64(1.0lf, z.x), turn);
    }
    let t = tan_f64(z.y);
    let beta = 1.0lf + t * t;
    let s = sinh_f64(z.x);
    let rho = sqrt(1.0lf + s * s);
    let bottom = 1.0lf + beta * s * s;
    return vec2(select(beta * rho * s / bottom, z.x, z.x == 0.0lf), select(t / bottom, z.y,
        z.y == 0.0lf));
}

fn complex_sin_f64(z: vec2<f64>) -> vec2<f64> {
    let w = complex_sinh_f64(vec2(-z.y, z.x));
    return vec2(w.y, -w.x);
}

fn complex_cos_f64(z: vec2<f64>) -> vec2<f64> {
    return complex_cosh_f64(vec2(-z.y, z.x));
}

fn complex_tan_f64(z: vec2<f64>) -> vec2<f64> {
    let w = complex_tanh_f64(vec2(-z.y, z.x));
    return vec2(w.y, -w.x);
}

fn complex_log_abs_f64(z: vec2<f64>) -> f64 {
    let a = max(abs(z.x), abs(z.y));
    let b = min(abs(z.x), abs(z.y));
    if a == 0.0lf || !is_finite_f64(z.x) || !is_finite_f64(z.y) {
        return log_f64(complex_abs_f64(z));
    }
    if a > 0.5lf && a < 2.0lf {
        return 0.5lf * log1p_f64((a - 1.0lf) * (a + 1.0lf) + b * b);
    }
    let scale = select(select(1.0lf, 1.1102230246251565e-16lf, a > 1e290lf), 9007199254740992.0lf,
        a < 1e-290lf);
    let q = (b * scale) / (a * scale);
    return log_f64(a) + 0.5lf * log1p_f64(q * q);
}

fn complex_log_f64(z: vec2<f64>) -> vec2<f64> {
    return vec2(complex_log_abs_f64(z), atan2_f64(z.y, z.x));
}

fn complex_log1p_f64(z: vec2<f64>) -> vec2<f64> {
    if max(abs(z.x), abs(z.y)) < 0.5lf {
        return vec2(0.5lf * log1p_f64(2.0lf * z.x + (z.x * z.x + z.y * z.y)), atan2_f64(z.y,
            1.0lf + z.x));
    }
    return complex_log_f64(vec2(1.0lf + z.x, z.y));
}
