// log and log1p within 1 to 2 ulp; WGSL bounds its own log near 1 only by an absolute error of
// 2^-21.

// log(1 + f) - f for sqrt(1/2) <= 1 + f <= sqrt(2).
fn log_tail_f32(f: f32) -> f32 {
    let p = (((((((6.9169639832e-2 * f - 1.1791912992e-1) * f + 1.1873401693e-1) * f
        - 1.2384044108e-1) * f
        + 1.4218565813e-1) * f - 1.6669264032e-1) * f + 2.0002231279e-1) * f - 2.4999986432e-1) * f
        + 3.3333310377e-1;
    let z = f * f;
    return f * z * p - 0.5 * z;
}

// log(x) for finite x > 0, plus `rest`, a small correction.
fn log_positive_f32(x: f32, rest: f32) -> f32 {
    var bits = bitcast<u32>(x);
    var e = i32(bits >> 23u) - 127;
    if bits < 0x800000u {
        // Subnormal numbers are normalized by bits, since arithmetic may flush them to zero.
        let shift = countLeadingZeros(bits) - 8u;
        bits = bits << shift;
        e = -126 - i32(shift);
    }
    var m = bitcast<f32>((bits & 0x7fffffu) | 0x3f800000u);
    if m > 1.41421356 {
        m = m * 0.5;
        e += 1;
    }
    let f = m - 1.0;
    let k = f32(e);
    // k * 0.693359375 is exact.
    let low = log_tail_f32(f) - k * 2.12194440e-4 + rest;
    return (f + low) + k * 0.693359375;
}

fn log_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    if (bits & 0x7fffffffu) == 0u {
        return infinity_like_f32(-1.0);
    }
    if is_nan_f32(x) || bits == 0x7f800000u {
        return x;
    }
    if (bits >> 31u) != 0u {
        return nan_like_f32(x);
    }
    return log_positive_f32(x, 0.0);
}

fn log1p_f32(x: f32) -> f32 {
    if is_nan_f32(x) || bitcast<u32>(x) == 0x7f800000u {
        return x;
    }
    if x > -0.29289 && x < 0.41421 {
        return x + log_tail_f32(x);
    }
    if x == -1.0 {
        return infinity_like_f32(x);
    }
    if x < -1.0 {
        return nan_like_f32(x);
    }
    let u = opaque_f32(1.0 + x);
    // The part that the sum lost.
    let lost = select(x - (u - 1.0), 1.0 - (u - x), u >= 2.0);
    return log_positive_f32(u, lost / u);
}
