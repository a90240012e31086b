// The float64 twin of `special`: values that WGSL has no literals for, and tests for them by bits.

fn is_nan_f64(x: f64) -> bool {
    return (bitcast<u64>(x) & 0x7ffffffffffffffflu) > 0x7ff0000000000000lu;
}

fn is_inf_f64(x: f64) -> bool {
    return (bitcast<u64>(x) & 0x7ffffffffffffffflu) == 0x7ff0000000000000lu;
}

fn is_finite_f64(x: f64) -> bool {
    return (bitcast<u64>(x) & 0x7ff0000000000000lu) != 0x7ff0000000000000lu;
}

// Whether the sign bit is set, also for -0 and NaN.
fn is_negative_f64(x: f64) -> bool {
    return (bitcast<u64>(x) >> 63u) != 0lu;
}

// Infinity with the sign of `x`.
fn infinity_like_f64(x: f64) -> f64 {
    return bitcast<f64>((bitcast<u64>(x) & 0x8000000000000000lu) | 0x7ff0000000000000lu);
}

// A quiet NaN; `x` is any value.
fn nan_like_f64(x: f64) -> f64 {
    return bitcast<f64>(bitcast<u64>(x) | 0x7ff8000000000000lu);
}

fn copy_sign_f64(magnitude: f64, sign: f64) -> f64 {
    return bitcast<f64>((bitcast<u64>(magnitude) & 0x7ffffffffffffffflu)
        | (bitcast<u64>(sign) & 0x8000000000000000lu));
}

// The larger value; NaN when either is NaN.
fn max_f64(x: f64, y: f64) -> f64 {
    if is_nan_f64(x) {
        return x;
    }
    return select(max(x, y), y, is_nan_f64(y));
}

// The smaller value; NaN when either is NaN.
fn min_f64(x: f64, y: f64) -> f64 {
    if is_nan_f64(x) {
        return x;
    }
    return select(min(x, y), y, is_nan_f64(y));
}

// `t` within bounds. The lower bound is applied first; NaN stays, and bounds that are NaN do not
// count. This compares, since min and max may take either of two zeros.
fn clip_f64(t: f64, low: f64, high: f64) -> f64 {
    let below = select(t, high, high < t && !is_nan_f64(high));
    let clipped = select(below, low, below < low && !is_nan_f64(low));
    return select(clipped, t, is_nan_f64(t));
}

fn sign_f64(x: f64) -> f64 {
    return select(select(0.0lf, 1.0lf, x > 0.0lf) - select(0.0lf, 1.0lf, x < 0.0lf), x,
        is_nan_f64(x));
}

// The high half of the significand, whose square is exact.
fn high_bits_f64(x: f64) -> f64 {
    return bitcast<f64>(bitcast<u64>(x) & 0xffffffff00000000lu);
}

// A sum without its last bit. The part that the sum lost is computed from it, and a compiler cannot
// cancel it against its own terms.
fn trim_f64(x: f64) -> f64 {
    return bitcast<f64>(bitcast<u64>(x) & 0xfffffffffffffffelu);
}
