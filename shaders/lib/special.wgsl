// Values that WGSL has no literals for, and tests for them by bits: drivers may assume that neither NaN nor infinity occurs.

fn is_nan_f32(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn is_inf_f32(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}

fn is_finite_f32(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
}

// Whether the sign bit is set, also for -0 and NaN.
fn is_negative_f32(x: f32) -> bool {
    return (bitcast<u32>(x) >> 31u) != 0u;
}

// Infinity with the sign of `x`. WGSL forbids the constant, so the bits come from a variable.
fn infinity_like_f32(x: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(x) & 0x80000000u) | 0x7f800000u);
}

// A quiet NaN; `x` is any value.
fn nan_like_f32(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) | 0x7fc00000u);
}

fn copy_sign_f32(magnitude: f32, sign: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(magnitude) & 0x7fffffffu) | (bitcast<u32>(sign) & 0x80000000u));
}

// The larger value; NaN when either is NaN.
fn max_f32(x: f32, y: f32) -> f32 {
    if is_nan_f32(x) {
        return x;
    }
    return select(max(x, y), y, is_nan_f32(y));
}

// The smaller value; NaN when either is NaN.
fn min_f32(x: f32, y: f32) -> f32 {
    if is_nan_f32(x) {
        return x;
    }
    return select(min(x, y), y, is_nan_f32(y));
}

fn sign_f32(x: f32) -> f32 {
    return select(select(0.0, 1.0, x > 0.0) - select(0.0, 1.0, x < 0.0), x, is_nan_f32(x));
}
