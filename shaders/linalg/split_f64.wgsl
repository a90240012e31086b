// The constants and functions of float64, which has no frexp, that determinant.wgsl needs.

const LEAST_EXPONENT = -1022;
const LARGEST_EXPONENT = 1023;

// x = mantissa * 2^exponent with 0.5 <= |mantissa| < 1, or zero; infinities and NaNs are special.
fn split(x: f64) -> Split {
    var bits = bitcast<u64>(x);
    var lower = 1022;
    if (bits & 0x7ffffffffffffffflu) >= 0x7ff0000000000000lu {
        return Split(x, 0, true);
    }
    if (bits & 0x7ffffffffffffffflu) < 0x0010000000000000lu {
        // The number is zero or subnormal; where subnormals are flushed the product is zero.
        bits = bitcast<u64>(x * 18014398509481984.0);
        lower += 54;
    }
    if (bits & 0x7ffffffffffffffflu) == 0lu {
        return Split(x, 0, false);
    }
    let exponent = i32(u32(bits >> 52u) & 0x7ffu) - lower;
    return Split(bitcast<f64>((bits & 0x800ffffffffffffflu) | 0x3fe0000000000000lu), exponent,
        false);
}

// 2^e for exponents within the bounds above.
fn power_of_two(e: i32) -> f64 {
    return bitcast<f64>(u64(u32(e + 1023)) << 52u);
}

// x * 2^e, in two steps in an order that compilers keep, since 2^e alone may overflow or vanish.
fn scaled(x: f64, e: i32) -> f64 {
    let bounded = clamp(e, 2 * LEAST_EXPONENT, 2 * LARGEST_EXPONENT);
    let half = bounded / 2;
    return opaque_f64(x * power_of_two(half)) * power_of_two(bounded - half);
}

fn is_nan(x: f64) -> bool {
    return is_nan_f64(x);
}

fn natural_log(x: f64) -> f64 {
    return log_f64(x);
}
