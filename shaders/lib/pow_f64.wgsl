// x to the power y of float64 within 1 ulp: log2(x) as a sum of two floats, the product with y,
// then exp2. After FreeBSD's msun: Copyright (C) 1993 by Sun Microsystems, Inc. All rights
// reserved. Permission to use, copy, modify, and distribute this software is freely granted,
// provided that this notice is preserved.

// 0: y is not an integer, 1: odd, 2: even.
fn parity_f64(y: f64) -> u32 {
    let a = abs(y);
    if a >= 9007199254740992.0 {
        return 2u;
    }
    if floor(a) != a {
        return 0u;
    }
    let half = 0.5 * a;
    return select(1u, 2u, floor(half) == half);
}

fn pow_f64(x: f64, y: f64) -> f64 {
    let ax = abs(x);
    if y == 0.0 || x == 1.0 {
        return 1.0lf;
    }
    if is_nan_f64(x) || is_nan_f64(y) {
        return nan_like_f64(x);
    }
    let parity = select(parity_f64(y), 2u, is_inf_f64(y));
    let sign = select(1.0lf, -1.0lf, is_negative_f64(x) && parity == 1u);
    if is_inf_f64(y) {
        if ax == 1.0 {
            return 1.0lf;
        }
        return select(0.0lf, infinity_like_f64(1.0lf), (ax > 1.0) == (y > 0.0));
    }
    if ax == 0.0 || is_inf_f64(x) {
        return copy_sign_f64(select(0.0lf, infinity_like_f64(1.0lf), (ax == 0.0) == (y < 0.0)),
            sign);
    }
    if x < 0.0 && parity == 0u {
        return nan_like_f64(x);
    }
    if ax == 1.0 {
        return sign;
    }
    if y == 1.0 {
        return x;
    }
    if y == -1.0 {
        return 1.0 / x;
    }
    if y == 2.0 {
        return x * x;
    }
    if y == 0.5 {
        return sqrt(x);
    }
    var log_high = 0.0lf;
    var log_low = 0.0lf;
    if abs(y) > 2147483648.0 {
        if abs(y) > 18446744073709551616.0 || ax < 0.999999 || ax > 1.000001 {
            return copy_sign_f64(select(0.0lf, infinity_like_f64(1.0lf), (ax > 1.0) == (y > 0.0)),
                sign);
        }
        // |1 - ax| is tiny: log(ax) = t - t^2/2 + t^3/3 - t^4/4.
        let t = ax - 1.0;
        let w = (t * t) * (0.5 - t * (0.3333333333333333 - t * 0.25));
        // The first product is exact: y is large, and so would be y times its error.
        let t_high = high_bits_f64(t);
        let u = 1.4426950216293335 * t_high;
        let v = 1.4426950216293335 * (t - t_high) + (t * 1.9259629911266175e-08 - w
            * 1.4426950408889634);
        log_high = high_bits_f64(u + v);
        log_low = v - (log_high - u);
    } else {
        // ax = m * 2^n with m / b near 1, b = 1 or 3/2.
        var bits = bitcast<u64>(ax);
        var n = i32(u32(bits >> 52u)) - 1023;
        if bits < 0x10000000000000lu {
            let shift = leading_zeros_u64(bits) - 11u;
            bits = bits << shift;
            n = -1022 - i32(shift);
        }
        let fraction = bits & 0xffffffffffffflu;
        bits = fraction | 0x3ff0000000000000lu;
        var b = 1.0lf;
        var b_log_high = 0.0lf;
        var b_log_low = 0.0lf;
        if fraction >= 0x3988f00000000lu {
            if fraction < 0xbb67a00000000lu {
                b = 1.5lf;
                b_log_high = 0.5849624872207642lf;
                b_log_low = 1.350039202129749e-08lf;
            } else {
                n += 1;
                bits -= 0x10000000000000lu;
            }
        }
        let m = bitcast<f64>(bits);
        // s = (m - b) / (m + b) in two parts.
        let u = m - b;
        let v = 1.0 / (m + b);
        let s = u * v;
        let s_high = high_bits_f64(s);
        let sum_high = high_bits_f64(m + b);
        let sum_low = m - (sum_high - b);
        let s_low = v * ((u - s_high * sum_high) - s_high * sum_low);
        // log(m / b) = 2 s + 2/3 s^3 + ...
        let z = s * s;
        var r = 0.20697501780033842lf;
        r = r * z + 0.23066074577556175;
        r = r * z + 0.272728123808534;
        r = r * z + 0.33333332981837743;
        r = r * z + 0.4285714285785502;
        r = r * z + 0.5999999999999946;
        r = z * z * r + s_low * (s_high + s);
        let z_high = s_high * s_high;
        let t_high = high_bits_f64(3.0 + z_high + r);
        let t_low = r - ((t_high - 3.0) - z_high);
        let a1 = s_high * t_high;
        let a2 = s_low * t_high + t_low * s;
        let p_high = high_bits_f64(a1 + a2);
        let p_low = a2 - (p_high - a1);
        // Times 2 / (3 ln 2), again in two parts.
        let q_high = 0.9617967009544373 * p_high;
        let q_low = -7.028461650952758e-09 * p_high + p_low * 0.9617966939259756 + b_log_low;
        let k = f64(n);
        log_high = high_bits_f64(((q_high + q_low) + b_log_high) + k);
        log_low = q_low - (((log_high - k) - b_log_high) - q_high);
    }
    // y log2(x)
    let y_high = high_bits_f64(y);
    let low = (y - y_high) * log_high + y * log_low;
    let high = y_high * log_high;
    let total = high + low;
    if total >= 1024.0 {
        return sign * infinity_like_f64(1.0lf);
    }
    if total < -1075.0 {
        return copy_sign_f64(0.0lf, sign);
    }
    let whole = round(total);
    let h = high - whole;
    let t = high_bits_f64(low + h);
    let u = t * 0.6931471824645996;
    let v = (low - (t - h)) * 0.6931471805599453 + t * -1.904654299957768e-09;
    let e = trim_f64(u + v);
    let w = v - (e - u);
    let e2 = e * e;
    var q = 4.1381367970572385e-08lf;
    q = q * e2 - 1.6533902205465252e-06;
    q = q * e2 + 6.613756321437934e-05;
    q = q * e2 - 0.0027777777777015593;
    q = q * e2 + 0.16666666666666602;
    let e1 = e - e2 * q;
    let r = (e * e1) / (e1 - 2.0) - (w + e * w);
    return sign * scale_f64(1.0 - (r - e), i32(whole));
}
