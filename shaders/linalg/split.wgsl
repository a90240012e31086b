// The constants and functions of float32 that determinant.wgsl needs.

const LEAST_EXPONENT = -126;
const LARGEST_EXPONENT = 127;

// x = mantissa * 2^exponent with 0.5 <= |mantissa| < 1, or zero; infinities and NaNs are special.
fn split(x: f32) -> Split {
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    if bits >= 0x7f800000u {
        return Split(x, 0, true);
    }
    if bits < 0x00800000u {
        // The number is zero or subnormal; where subnormals are flushed the product is zero.
        let scaled = frexp(x * 16777216.0);
        return Split(scaled.fract, scaled.exp - 24, false);
    }
    let parts = frexp(x);
    return Split(parts.fract, parts.exp, false);
}

// 2^e for exponents within the bounds above.
fn power_of_two(e: i32) -> f32 {
    return bitcast<f32>(u32(e + 127) << 23u);
}

// x * 2^e, in two steps in an order that compilers keep, since 2^e alone may overflow or vanish.
fn scaled(x: f32, e: i32) -> f32 {
    let bounded = clamp(e, 2 * LEAST_EXPONENT, 2 * LARGEST_EXPONENT);
    let half = bounded / 2;
    return opaque_f32(x * power_of_two(half)) * power_of_two(bounded - half);
}

fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn natural_log(x: f32) -> f32 {
    return log(x);
}
