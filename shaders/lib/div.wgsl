// Division and remainder that do not depend on the driver's division, which WGSL allows to be off
// by 2.5 ulp.

// The significand of |x| as an integer of 24 bits with its leading bit set, and the exponent e with
// |x| = significand * 2^e. x is finite and not zero.
struct Significand {
    bits: u32,
    exponent: i32,
}

fn significand_f32(x: f32) -> Significand {
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    if bits < 0x800000u {
        let shift = countLeadingZeros(bits) - 8u;
        return Significand(bits << shift, -149 - i32(shift));
    }
    return Significand((bits & 0x7fffffu) | 0x800000u, i32(bits >> 23u) - 150);
}

// significand * 2^exponent, rounded to nearest even; `significand` has at most 31 bits, its lowest
// being sticky.
fn compose_f32(significand: u32, exponent: i32) -> f32 {
    if significand == 0u {
        return 0.0;
    }
    let width = 32 - i32(countLeadingZeros(significand));
    // Exponent of the result's last place; subnormals end at 2^-149.
    let last = max(exponent + width - 24, -149);
    let drop = last - exponent;
    var m = significand;
    if drop <= 0 {
        m = m << u32(-drop);
    } else if drop > 31 {
        m = 0u;
    } else {
        let half = 1u << u32(drop - 1);
        let rest = m & ((1u << u32(drop)) - 1u);
        m = m >> u32(drop);
        if rest > half || (rest == half && (m & 1u) == 1u) {
            m += 1u;
        }
    }
    // Rounding up to 2^24 carries into the exponent by itself.
    if m < 0x800000u {
        return bitcast<f32>(m);
    }
    let biased = last + 150;
    if biased > 254 || (biased == 254 && m > 0xffffffu) {
        return infinity_like_f32(1.0);
    }
    return bitcast<f32>((u32(biased) << 23u) + (m - 0x800000u));
}

// x / y, correctly rounded.
fn div_f32(x: f32, y: f32) -> f32 {
    if !is_finite_f32(x) || !is_finite_f32(y) || x == 0.0 || y == 0.0 {
        return x / y;
    }
    let a = significand_f32(x);
    let b = significand_f32(y);
    // 27 bits of the quotient, 8 at a time, and a sticky bit.
    var quotient = a.bits / b.bits;
    var rest = a.bits % b.bits;
    for (var k = 0u; k < 3u; k += 1u) {
        rest = rest << 8u;
        quotient = (quotient << 8u) | (rest / b.bits);
        rest = rest % b.bits;
    }
    rest = rest << 2u;
    quotient = (quotient << 2u) | (rest / b.bits);
    rest = rest % b.bits;
    quotient = (quotient << 1u) | select(0u, 1u, rest != 0u);
    let magnitude = compose_f32(quotient, a.exponent - b.exponent - 27);
    return bitcast<f32>(bitcast<u32>(magnitude)
        | ((bitcast<u32>(x) ^ bitcast<u32>(y)) & 0x80000000u));
}

// The largest whole number up to q. A value below 1 is recognized by bits: it may be subnormal,
// which drivers may treat as zero.
fn floor_of_quotient_f32(q: f32) -> f32 {
    let magnitude = bitcast<u32>(q) & 0x7fffffffu;
    if magnitude != 0u && magnitude < 0x3f800000u {
        // This gives -1 or 0 without a select, which Mesa's drivers turn into -1 or -0.
        return bitcast<f32>(bitcast<u32>(bitcast<i32>(q) >> 31u) & 0xbf800000u);
    }
    return floor(q);
}

// |x| modulo |y|, exactly, for finite |x| >= |y| > 0.
fn rest_f32(x: f32, y: f32) -> Significand {
    let a = significand_f32(x);
    let b = significand_f32(y);
    // |x| >= |y|, so the exponent of a is at least that of b.
    var rest = a.bits % b.bits;
    var left = u32(a.exponent - b.exponent);
    for (var k = 0u; k < 35u && left > 0u && rest != 0u; k += 1u) {
        let step = min(left, 8u);
        rest = (rest << step) % b.bits;
        left -= step;
    }
    return Significand(rest, b.exponent);
}

// The exact remainder of x / y with the sign of x, as C's fmod.
fn fmod_f32(x: f32, y: f32) -> f32 {
    if is_nan_f32(x) || is_nan_f32(y) || is_inf_f32(x) || y == 0.0 {
        return nan_like_f32(x);
    }
    if is_inf_f32(y) || abs(x) < abs(y) {
        return x;
    }
    let rest = rest_f32(x, y);
    return copy_sign_f32(compose_f32(rest.bits, rest.exponent), x);
}

// TensorFlow's FloorMod: the remainder moved to the sign of y. The remainder may be subnormal, so
// it is moved as an integer.
fn floor_mod_f32(x: f32, y: f32) -> f32 {
    if is_nan_f32(x) || is_nan_f32(y) || is_inf_f32(x) || y == 0.0 {
        return nan_like_f32(x);
    }
    let moved = is_negative_f32(x) != is_negative_f32(y);
    if is_inf_f32(y) || abs(x) < abs(y) {
        return select(x, x + y, moved && x != 0.0);
    }
    var rest = rest_f32(x, y);
    if moved && rest.bits != 0u {
        rest.bits = significand_f32(y).bits - rest.bits;
        return copy_sign_f32(compose_f32(rest.bits, rest.exponent), y);
    }
    return copy_sign_f32(compose_f32(rest.bits, rest.exponent), x);
}
