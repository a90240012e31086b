// x to the power y within 1 to 2 ulp, after FreeBSD's e_powf: log2(x) as a sum of two floats, the
// product with y exact to 2^-40, then exp2. WGSL's own pow has the errors of exp2(y * log2(x)) and
// no negative bases.

fn high_bits_f32(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
}

// 0: y is not an integer, 1: odd, 2: even.
fn parity_f32(y: f32) -> u32 {
    let a = abs(y);
    if a >= 16777216.0 {
        return 2u;
    }
    if floor(a) != a {
        return 0u;
    }
    return 2u - (u32(a) & 1u);
}

fn pow_f32(x: f32, y: f32) -> f32 {
    let ax = abs(x);
    if y == 0.0 || x == 1.0 {
        return 1.0;
    }
    if is_nan_f32(x) || is_nan_f32(y) {
        return nan_like_f32(x);
    }
    let parity = select(parity_f32(y), 2u, is_inf_f32(y));
    let sign = select(1.0, -1.0, is_negative_f32(x) && parity == 1u);
    if is_inf_f32(y) {
        if ax == 1.0 {
            return 1.0;
        }
        return select(0.0, infinity_like_f32(1.0), (ax > 1.0) == (y > 0.0));
    }
    if ax == 0.0 || is_inf_f32(x) {
        return copy_sign_f32(select(0.0, infinity_like_f32(1.0), (ax == 0.0) == (y < 0.0)), sign);
    }
    if x < 0.0 && parity == 0u {
        return nan_like_f32(x);
    }
    if ax == 1.0 {
        return sign;
    }
    // ax = m * 2^n with m / b near 1, b = 1 or 1.5.
    var bits = bitcast<u32>(ax);
    var n = i32(bits >> 23u) - 127;
    if bits < 0x800000u {
        let shift = countLeadingZeros(bits) - 8u;
        bits = bits << shift;
        n = -126 - i32(shift);
    }
    let fraction = bits & 0x7fffffu;
    bits = fraction | 0x3f800000u;
    var b = 1.0;
    var log_b_high = 0.0;
    var log_b_low = 0.0;
    if fraction > 0x1cc471u {
        if fraction < 0x5db3d7u {
            b = 1.5;
            log_b_high = 5.84960938e-01;
            log_b_low = 1.56322085e-06;
        } else {
            n += 1;
            bits -= 0x800000u;
        }
    }
    let m = bitcast<f32>(bits);
    // s = (m - b) / (m + b) in two parts.
    let u = m - b;
    let v = 1.0 / (m + b);
    let s = u * v;
    let s_high = high_bits_f32(s);
    let t_sum_high = high_bits_f32(m + b);
    let t_sum_low = m - (t_sum_high - b);
    let s_low = v * ((u - s_high * t_sum_high) - s_high * t_sum_low);
    // log(m / b) = 2 s + 2/3 s^3 + ...
    let s2 = s * s;
    var r = s2 * s2 * (6.0000002384e-01 + s2 * (4.2857143283e-01 + s2 * (3.3333334327e-01 + s2
        * (2.7272811532e-01
        + s2 * (2.3066075146e-01 + s2 * 2.0697501302e-01)))));
    r += s_low * (s_high + s);
    let s2_high = s_high * s_high;
    let t_high = high_bits_f32(3.0 + s2_high + r);
    let t_low = r - ((t_high - 3.0) - s2_high);
    let a1 = s_high * t_high;
    let a2 = s_low * t_high + t_low * s;
    let p_high = high_bits_f32(a1 + a2);
    let p_low = a2 - (p_high - a1);
    // Times 2 / (3 ln 2), again in two parts.
    let z_high = 9.6191406250e-01 * p_high;
    let z_low = -1.1736857402e-04 * p_high + p_low * 9.6179670095e-01 + log_b_low;
    let k = f32(n);
    let log_high = high_bits_f32(((z_high + z_low) + log_b_high) + k);
    let log_low = z_low - (((log_high - k) - log_b_high) - z_high);
    // y log2(x)
    let y_high = high_bits_f32(y);
    let low = (y - y_high) * log_high + y * log_low;
    let high = y_high * log_high;
    let total = high + low;
    // At 128 the parts decide: the logarithm of the largest number is 128 - 8.6e-8, and numbers
    // that round to infinity have a logarithm above 128 - 4.3e-8.
    if total > 128.0 || (total == 128.0 && (high - 128.0) + low > -4.2995665694e-08) {
        return sign * infinity_like_f32(1.0);
    }
    if total < -150.0 {
        return copy_sign_f32(0.0, sign);
    }
    let whole = round(total);
    let h = high - whole;
    let t = high_bits_f32(low + h);
    let exponent_high = t * 6.93145752e-01;
    let exponent_low = (low - (t - h)) * 6.9314718246e-01 + t * 1.42860654e-06;
    let r_sum = opaque_f32(exponent_high + exponent_low);
    let r_rest = exponent_low - (r_sum - exponent_high);
    let e = expm1_small_f32(r_sum);
    return sign * scale_f32(1.0 + (e + r_rest * (1.0 + e)), i32(whole));
}
