// exp and expm1 of float64 within 1 to 2 ulp. After FreeBSD's msun: Copyright (C) 1993 by Sun
// Microsystems, Inc. All rights reserved. Permission to use, copy, modify, and distribute this
// software is freely granted, provided that this notice is preserved.

// 2^k for -1022 <= k <= 1023.
fn power_of_two_f64(k: i32) -> f64 {
    return bitcast<f64>(u64(u32(k + 1023)) << 52u);
}

// y * 2^k, in two steps so that neither factor overflows.
fn scale_f64(y: f64, k: i32) -> f64 {
    let half = k >> 1u;
    return y * power_of_two_f64(half) * power_of_two_f64(k - half);
}

fn exp_f64(x: f64) -> f64 {
    if is_nan_f64(x) {
        return x;
    }
    if x > 709.782712893384 {
        return infinity_like_f64(1.0lf);
    }
    if x < -745.2 {
        return 0.0lf;
    }
    // x = k ln 2 + r; the product of k and the first part of ln 2 is exact.
    let k = round(x * 1.4426950408889634);
    let high = x - k * 0.6931471803691238;
    let low = k * 1.9082149292705877e-10;
    let r = high - low;
    let z = r * r;
    var s = 4.1381367970572385e-08lf;
    s = s * z - 1.6533902205465252e-06;
    s = s * z + 6.613756321437934e-05;
    s = s * z - 0.0027777777777015593;
    s = s * z + 0.16666666666666602;
    let c = r - z * s;
    return scale_f64(1.0 + (r * c / (2.0 - c) - low + high), i32(k));
}

fn expm1_f64(x: f64) -> f64 {
    if is_nan_f64(x) || x == 0.0 {
        return x;
    }
    if x > 709.782712893384 {
        return infinity_like_f64(1.0lf);
    }
    if x < -40.0 {
        return -1.0lf;
    }
    let k = round(x * 1.4426950408889634);
    let high = x - k * 0.6931471803691238;
    let low = k * 1.9082149292705877e-10;
    let r = trim_f64(high - low);
    let lost = (high - r) - low;
    let half = 0.5 * r;
    let z = r * half;
    var s = -2.0109921818362437e-07lf;
    s = s * z + 4.008217827329362e-06;
    s = s * z - 7.93650757867488e-05;
    s = s * z + 0.0015873015872548146;
    s = s * z - 0.03333333333333313;
    s = s * z + 1.0;
    let t = 3.0 - s * half;
    let e = z * ((s - t) / (6.0 - r * t));
    if k == 0.0 {
        return r - ((r * e - z) - lost);
    }
    let rest = (r * (e - lost) - lost) - z;
    if k == -1.0 {
        return 0.5 * (r - rest) - 0.5;
    }
    if k == 1.0 {
        if r < -0.25 {
            return -2.0 * (rest - (r + 0.5));
        }
        return 1.0 + 2.0 * (r - rest);
    }
    let n = i32(k);
    if n < 0 || n > 56 {
        return scale_f64(r - rest + 1.0, n) - 1.0;
    }
    let inverse = power_of_two_f64(-n);
    if n < 20 {
        return scale_f64((r - rest) + (1.0 - inverse), n);
    }
    return scale_f64((r - (rest + inverse)) + 1.0, n);
}

fn sigmoid_f64(x: f64) -> f64 {
    return 1.0 / (1.0 + exp_f64(-x));
}
