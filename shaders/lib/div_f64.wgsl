// The remainder of float64 numbers by long division of their significands.

// The significand of |x| as an integer of 53 bits with its leading bit set, and the exponent e with
// |x| = significand * 2^e. x is finite and not zero.
struct SignificandF64 {
    bits: u64,
    exponent: i32,
}

fn leading_zeros_u64(v: u64) -> u32 {
    let high = u32(v >> 32u);
    return select(countLeadingZeros(high), 32u + countLeadingZeros(u32(v & 0xfffffffflu)),
        high == 0u);
}

fn significand_f64(x: f64) -> SignificandF64 {
    let bits = bitcast<u64>(x) & 0x7ffffffffffffffflu;
    if bits < 0x10000000000000lu {
        let shift = leading_zeros_u64(bits) - 11u;
        return SignificandF64(bits << shift, -1074 - i32(shift));
    }
    return SignificandF64((bits & 0xffffffffffffflu) | 0x10000000000000lu,
        i32(u32(bits >> 52u)) - 1075);
}

// The exact remainder of x / y with the sign of x, as C's fmod.
fn fmod_f64(x: f64, y: f64) -> f64 {
    if is_nan_f64(x) || is_nan_f64(y) || is_inf_f64(x) || y == 0.0lf {
        return nan_like_f64(x);
    }
    if is_inf_f64(y) || abs(x) < abs(y) {
        return x;
    }
    let a = significand_f64(x);
    let b = significand_f64(y);
    // |x| >= |y|, so the exponent of a is at least that of b. The loop takes 2098 bits at most, 11
    // at a time. There is one division in the text: compilers spend 700 instructions and 80 scalar
    // registers on each.
    var rest = a.bits;
    var left = u32(a.exponent - b.exponent);
    for (var k = 0u; k < 192u; k += 1u) {
        rest = rest % b.bits;
        if left == 0u || rest == 0lu {
            break;
        }
        let step = min(left, 11u);
        rest = rest << step;
        left -= step;
    }
    if rest == 0lu {
        return copy_sign_f64(0.0lf, x);
    }
    // rest * 2^b.exponent is a multiple of y's last place and below y: it needs no rounding.
    let shift = leading_zeros_u64(rest) - 11u;
    let exponent = b.exponent - i32(shift) + 1075;
    var magnitude = rest << shift;
    if exponent <= 0 {
        magnitude = magnitude >> u32(1 - exponent);
    } else {
        magnitude = (magnitude & 0xffffffffffffflu) | (u64(u32(exponent)) << 52u);
    }
    return copy_sign_f64(bitcast<f64>(magnitude), x);
}

// TensorFlow's FloorMod: the remainder moved to the sign of y.
fn floor_mod_f64(x: f64, y: f64) -> f64 {
    let rest = fmod_f64(x, y);
    if rest != 0.0lf && !is_nan_f64(rest) && ((rest < 0.0lf) != (y < 0.0lf)) {
        return rest + y;
    }
    return rest;
}
