// Hyperbolic functions and their inverses within 3 ulp; WGSL's own may cancel near zero and
// overflow early.

fn sinh_f32(x: f32) -> f32 {
    let a = abs(x);
    if is_nan_f32(x) {
        return x;
    }
    if a < 1.0 {
        let z = x * x;
        return x + x * z * ((2.03721912945e-4 * z + 8.33028376239e-3) * z + 1.66667160211e-1);
    }
    if a < 9.0 {
        let t = expm1_f32(a);
        return copy_sign_f32(0.5 * (t + t / (t + 1.0)), x);
    }
    let root = exp_f32(0.5 * a);
    return copy_sign_f32(opaque_f32(0.5 * root) * root, x);
}

fn cosh_f32(x: f32) -> f32 {
    let a = abs(x);
    if a < 9.0 {
        let e = exp_f32(a);
        return 0.5 * e + 0.5 / e;
    }
    let root = exp_f32(0.5 * a);
    return opaque_f32(0.5 * root) * root;
}

// (T + s) / (1 + T s) with s = tanh(r) and T = tanh(k ln 2 / 2) = (2^k - 1) / (2^k + 1), within 2.6
// ulp. |x| = k ln 2 / 2 + r with |r| <= ln 2 / 4; the product need not be exact, since for large k
// the quotient is near 1 for every r. There are no branches, since software adapters execute all
// sides of one. From 9.02 on, tanh is 1.
fn tanh_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    let a = bitcast<f32>(min(bits, 0x411051ecu));
    let k = round(a * 2.88539008);
    let r = a - k * 0.34657359;
    let z = r * r;
    let s = r + r * (z * (1.31102336e-1 * z - 3.33312648e-1));
    let power = whole_power_of_two_f32(k);
    let less = power - 1.0;
    let more = power + 1.0;
    return select(copy_sign_f32((less + more * s) / (more + less * s), x), x, bits > 0x7f800000u);
}

fn asinh_f32(x: f32) -> f32 {
    let a = abs(x);
    if !is_finite_f32(x) {
        return x;
    }
    if a < 0.5 {
        let z = x * x;
        let p = ((2.0122003309e-2 * z - 4.2699340972e-2) * z + 7.4847586088e-2) * z
            - 1.6666288134e-1;
        return copy_sign_f32(a + a * z * p, x);
    }
    if a > 1e4 {
        return copy_sign_f32(log_f32(a) + 0.693147181, x);
    }
    let z = a * a;
    return copy_sign_f32(log1p_f32(a + z / (1.0 + sqrt(z + 1.0))), x);
}

fn acosh_f32(x: f32) -> f32 {
    if is_nan_f32(x) || x < 1.0 {
        return nan_like_f32(x);
    }
    if x > 1e4 {
        return log_f32(x) + 0.693147181;
    }
    let t = x - 1.0;
    return log1p_f32(t + sqrt(2.0 * t + t * t));
}

fn atanh_f32(x: f32) -> f32 {
    let a = abs(x);
    if is_nan_f32(x) || a > 1.0 {
        return nan_like_f32(x);
    }
    if a == 1.0 {
        return infinity_like_f32(x);
    }
    if a < 0.5 {
        let z = x * x;
        let p = (((1.81740078349e-1 * z + 8.24370301058e-2) * z + 1.46691431730e-1) * z
            + 1.99782164500e-1) * z
            + 3.33337300303e-1;
        return x + x * z * p;
    }
    return copy_sign_f32(0.5 * log1p_f32((a + a) / (1.0 - a)), x);
}
