// asin, acos, atan and atan2 within 3 ulp; WGSL's own are defined by an absolute error.

// atan(a) for 0 <= a <= 1, plus `rest`, a small correction.
fn atan_unit_f32(a: f32, rest: f32) -> f32 {
    var base = 0.0;
    var t = a;
    if a > 0.414213562 {
        base = 0.785398163;
        t = (a - 1.0) / (a + 1.0);
    }
    let z = t * t;
    let p = (((8.05374449538e-2 * z - 1.38776856032e-1) * z + 1.99777106478e-1) * z
        - 3.33329491539e-1) * z * t;
    return base + (t + (p + rest));
}

fn atan_f32(x: f32) -> f32 {
    if is_nan_f32(x) {
        return x;
    }
    let a = abs(x);
    if is_inf_f32(x) {
        return copy_sign_f32(1.57079633, x);
    }
    let y = select(atan_unit_f32(a, 0.0), 1.57079633 - atan_unit_f32(1.0 / a, 4.37113883e-8),
        a > 1.0);
    return copy_sign_f32(y, x);
}

fn atan2_f32(y: f32, x: f32) -> f32 {
    if is_nan_f32(x) || is_nan_f32(y) {
        return nan_like_f32(x);
    }
    let a = abs(x);
    let b = abs(y);
    let top = min(a, b);
    let bottom = max(a, b);
    var quotient = 0.0;
    if is_inf_f32(top) {
        quotient = 1.0;
    } else if top > 0.0 && !is_inf_f32(bottom) {
        // The quotient is scaled, since drivers may flush or overflow the reciprocal of an extreme
        // divisor.
        let scale = select(select(1.0, 5.9604645e-8, bottom > 1e30), 16777216.0, bottom < 1e-30);
        quotient = (top * scale) / (bottom * scale);
    }
    var angle = atan_unit_f32(quotient, 0.0);
    if b > a {
        angle = 1.57079633 - (angle + 4.37113883e-8);
    }
    if is_negative_f32(x) {
        angle = 3.14159265 - (angle + 8.74227766e-8);
    }
    return copy_sign_f32(angle, y);
}

// asin(a) - a for 0 <= a <= 1/2, z = a * a.
fn asin_tail_f32(a: f32, z: f32) -> f32 {
    return ((((4.2163199048e-2 * z + 2.4181311049e-2) * z + 4.5470025998e-2) * z + 7.4953002686e-2)
        * z
        + 1.6666752422e-1) * z * a;
}

fn asin_f32(x: f32) -> f32 {
    let a = abs(x);
    if is_nan_f32(x) || a > 1.0 {
        return nan_like_f32(x);
    }
    if a <= 0.5 {
        return x + asin_tail_f32(x, a * a);
    }
    let z = 0.5 * (1.0 - a);
    let s = sqrt(z);
    return copy_sign_f32(1.57079633 - (2.0 * (s + asin_tail_f32(s, z)) + 4.37113883e-8), x);
}

fn acos_f32(x: f32) -> f32 {
    let a = abs(x);
    if is_nan_f32(x) || a > 1.0 {
        return nan_like_f32(x);
    }
    if a <= 0.5 {
        return 1.57079633 - (x + (asin_tail_f32(x, a * a) + 4.37113883e-8));
    }
    let z = 0.5 * (1.0 - a);
    let s = sqrt(z);
    let half = s + asin_tail_f32(s, z);
    return select(2.0 * half, 3.14159265 - (2.0 * half + 8.74227766e-8), x < 0.0);
}
