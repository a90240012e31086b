// Values that WGSL has no literals for, and tests for them by bits: drivers may assume that neither
// NaN nor infinity occurs.

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

// `magnitude` with the sign of `sign`. The shorter form, (magnitude & 0x7fffffff) | (sign &
// 0x80000000), is one instruction of AVX-512, and LLVM up to 22 gives that instruction a wrong
// truth table if the result is selected against one of its operands (llvm/llvm-project#157929).
fn copy_sign_f32(magnitude: f32, sign: f32) -> f32 {
    let positive = bitcast<u32>(magnitude) & 0x7fffffffu;
    return bitcast<f32>(select(positive, positive | 0x80000000u, bitcast<i32>(sign) < 0));
}

// The larger value; NaN when either is NaN.
fn max_f32(x: f32, y: f32) -> f32 {
    return select(select(max(x, y), y, is_nan_f32(y)), x, is_nan_f32(x));
}

// The smaller value; NaN when either is NaN.
fn min_f32(x: f32, y: f32) -> f32 {
    return select(select(min(x, y), y, is_nan_f32(y)), x, is_nan_f32(x));
}

// `t` within bounds. The lower bound is applied first; NaN stays, and bounds that are NaN do not
// count. This compares, since min and max may take either of two zeros.
fn clip_f32(t: f32, low: f32, high: f32) -> f32 {
    let below = select(t, high, high < t && !is_nan_f32(high));
    let clipped = select(below, low, below < low && !is_nan_f32(low));
    return select(clipped, t, is_nan_f32(t));
}

fn sign_f32(x: f32) -> f32 {
    return select(select(0.0, 1.0, x > 0.0) - select(0.0, 1.0, x < 0.0), x, is_nan_f32(x));
}
