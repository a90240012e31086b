// log and log1p of float64 within 1 to 2 ulp. After FreeBSD's msun: Copyright (C) 1993 by Sun
// Microsystems, Inc. All rights reserved. Permission to use, copy, modify, and distribute this
// software is freely granted, provided that this notice is preserved.

// log(1 + f) with 1 + f from sqrt(1/2) to sqrt(2), plus `rest` (a small correction) and k ln 2.
fn log_sum_f64(f: f64, rest: f64, k: f64) -> f64 {
    let half = 0.5 * f * f;
    let s = f / (2.0 + f);
    let z = s * s;
    var r = 0.14798198605116586lf;
    r = r * z + 0.15313837699209373;
    r = r * z + 0.1818357216161805;
    r = r * z + 0.22222198432149784;
    r = r * z + 0.2857142874366239;
    r = r * z + 0.3999999999940942;
    r = r * z + 0.6666666666666735;
    return s * (half + r * z) + (k * 1.9082149292705877e-10 + rest) - half + f + k
        * 0.6931471803691238;
}

// log(x) for finite x > 0, plus `rest`.
fn log_positive_f64(x: f64, rest: f64) -> f64 {
    var bits = bitcast<u64>(x);
    var e = i32(u32(bits >> 52u)) - 1023;
    if bits < 0x10000000000000lu {
        // Subnormal numbers are normalized by bits, since arithmetic may flush them to zero.
        let shift = leading_zeros_u64(bits) - 11u;
        bits = bits << shift;
        e = -1022 - i32(shift);
    }
    var m = bitcast<f64>((bits & 0xffffffffffffflu) | 0x3ff0000000000000lu);
    if m > 1.4142135623730951 {
        m = m * 0.5;
        e += 1;
    }
    return log_sum_f64(m - 1.0, rest, f64(e));
}

fn log_f64(x: f64) -> f64 {
    let bits = bitcast<u64>(x);
    if (bits & 0x7ffffffffffffffflu) == 0lu {
        return infinity_like_f64(-1.0lf);
    }
    if is_nan_f64(x) || bits == 0x7ff0000000000000lu {
        return x;
    }
    if (bits >> 63u) != 0lu {
        return nan_like_f64(x);
    }
    return log_positive_f64(x, 0.0lf);
}

fn log1p_f64(x: f64) -> f64 {
    if is_nan_f64(x) || bitcast<u64>(x) == 0x7ff0000000000000lu || abs(x) < 1.1e-16 {
        return x;
    }
    if x > -0.29289 && x < 0.41421 {
        return log_sum_f64(x, 0.0lf, 0.0lf);
    }
    if x == -1.0 {
        return infinity_like_f64(x);
    }
    if x < -1.0 {
        return nan_like_f64(x);
    }
    let u = trim_f64(1.0 + x);
    // The part that the sum lost.
    let lost = select(x - (u - 1.0), 1.0 - (u - x), u >= 2.0);
    return log_positive_f64(u, lost / u);
}
