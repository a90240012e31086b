// sin, cos and tan within 2 ulp for every argument; WGSL's own have an absolute error of 2^-11 and
// only within [-pi, pi].

// x = (quadrant + 4 n) pi/2 + hi + lo with |hi| <= pi/4 and a small lo.
struct TrigReduction {
    quadrant: u32,
    hi: f32,
    lo: f32,
}

// High 32 bits of a * b.
fn multiply_high_u32(a: u32, b: u32) -> u32 {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let middle = ah * bl + ((al * bl) >> 16u);
    let low = (middle & 0xffffu) + al * bh;
    return ah * bh + (middle >> 16u) + (low >> 16u);
}

// Word k of 2/pi = 0.W1 W2 ...; word 0 is the part before the point.
fn two_over_pi_word(k: u32) -> u32 {
    switch k {
        case 0u: { return 0u; }
        case 1u: { return 0xa2f9836eu; }
        case 2u: { return 0x4e441529u; }
        case 3u: { return 0xfc2757d1u; }
        case 4u: { return 0xf534ddc0u; }
        case 5u: { return 0xdb629599u; }
        case 6u: { return 0x3c439041u; }
        default: { return 0xfe5163abu; }
    }
}

// Payne and Hanek, for |x| >= 2^13: multiplies the significand by those bits of 2/pi that matter
// modulo 4.
fn trig_reduce_large_f32(x: f32) -> TrigReduction {
    let bits = bitcast<u32>(x);
    // |x| = s / 2^32 * 2^e
    let s = (bits << 8u) | 0x80000000u;
    let e = ((bits >> 23u) & 0xffu) - 126u;
    // g = 128 bits of 2/pi * 2^e, 34 of them before the point: s * g / 2^126 is x * 2/pi modulo 4.
    let first = e - 2u;
    let word = first >> 5u;
    let shift = first & 31u;
    var g0 = two_over_pi_word(word);
    var g1 = two_over_pi_word(word + 1u);
    var g2 = two_over_pi_word(word + 2u);
    var g3 = two_over_pi_word(word + 3u);
    if shift != 0u {
        g0 = (g0 << shift) | (g1 >> (32u - shift));
        g1 = (g1 << shift) | (g2 >> (32u - shift));
        g2 = (g2 << shift) | (g3 >> (32u - shift));
        g3 = (g3 << shift) | (two_over_pi_word(word + 4u) >> (32u - shift));
    }
    // The low 128 bits of the product.
    let p3 = s * g3;
    let low2 = s * g2;
    let p2 = low2 + multiply_high_u32(s, g3);
    let high2 = multiply_high_u32(s, g2) + select(0u, 1u, p2 < low2);
    let low1 = s * g1;
    let p1 = low1 + high2;
    let p0 = s * g0 + multiply_high_u32(s, g1) + select(0u, 1u, p1 < low1);
    var quadrant = p0 >> 30u;
    var f0 = (p0 << 2u) | (p1 >> 30u);
    var f1 = (p1 << 2u) | (p2 >> 30u);
    var f2 = (p2 << 2u) | (p3 >> 30u);
    var negative = false;
    if f0 >= 0x80000000u {
        // The nearer multiple is above: negate the fraction.
        quadrant = (quadrant + 1u) & 3u;
        negative = true;
        f2 = ~f2 + 1u;
        f1 = ~f1 + select(0u, 1u, f2 == 0u);
        f0 = ~f0 + select(0u, 1u, f1 == 0u && f2 == 0u);
    }
    // Normalize to 48 significant bits, as two floats.
    var exponent = -32;
    if f0 == 0u {
        f0 = f1;
        f1 = f2;
        f2 = 0u;
        exponent = -64;
    }
    let zeros = countLeadingZeros(f0);
    if zeros > 0u && zeros < 32u {
        f0 = (f0 << zeros) | (f1 >> (32u - zeros));
        f1 = (f1 << zeros) | (f2 >> (32u - zeros));
    }
    let scale = bitcast<f32>(u32(127 + exponent - i32(zeros & 31u)) << 23u);
    let a = f32(f0 >> 8u) * 256.0 * scale;
    let b = f32(((f0 & 0xffu) << 16u) | (f1 >> 16u)) * 1.52587890625e-5 * scale;
    // Times pi/2 = 1.5703125 + 4.8382676e-4 (of 12 and 24 bits): a is split so that the main
    // product is exact.
    let a_top = bitcast<f32>(bitcast<u32>(a) & 0xfffff000u);
    let a_rest = a - a_top;
    let main = a_top * 1.5703125;
    let rest = a_rest * 1.5703125 + (a * 4.83826794897e-4 + b * 1.57079633);
    var hi = opaque_f32(main + rest);
    var lo = rest - (hi - main);
    if negative {
        hi = -hi;
        lo = -lo;
    }
    if (bits >> 31u) != 0u {
        hi = -hi;
        lo = -lo;
        quadrant = (4u - quadrant) & 3u;
    }
    return TrigReduction(quadrant, hi, lo);
}

fn trig_reduce_f32(x: f32) -> TrigReduction {
    if abs(x) > 10000.0 {
        return trig_reduce_large_f32(x);
    }
    // Cody and Waite: pi/2 in parts of 11 bits, so that products with k (below 2^13) are exact.
    let k = round(x * 0.636619772);
    // The differences are opaque, since compilers with fast mathematics would subtract all parts at
    // once.
    let r = opaque_f32(opaque_f32(x - k * 1.5703125) - k * 4.837512969970703e-4);
    let t = k * 7.549533620476723e-8;
    let hi = opaque_f32(r - t);
    let lo = opaque_f32((r - hi) - t) - k * 2.563344151594519e-12;
    return TrigReduction(bitcast<u32>(i32(k)) & 3u, hi, lo);
}

// sin(hi + lo) for |hi| <= pi/4.
fn sin_small_f32(hi: f32, lo: f32) -> f32 {
    let z = hi * hi;
    let p = ((2.7182744000e-6 * z - 1.9839330988e-4) * z + 8.3333293741e-3) * z - 1.6666666642e-1;
    return hi + (hi * z * p + lo * (1.0 - 0.5 * z));
}

// cos(hi + lo) for |hi| <= pi/4.
fn cos_small_f32(hi: f32, lo: f32) -> f32 {
    let z = hi * hi;
    let p = ((2.4438089123e-5 * z - 1.3887364467e-3) * z + 4.1666646807e-2) * z * z;
    let half = 0.5 * z;
    let main = 1.0 - half;
    return main + ((1.0 - main) - half + (p - hi * lo));
}

fn sin_f32(x: f32) -> f32 {
    if !is_finite_f32(x) {
        return nan_like_f32(x);
    }
    let r = trig_reduce_f32(x);
    let y = select(sin_small_f32(r.hi, r.lo), cos_small_f32(r.hi, r.lo), (r.quadrant & 1u) != 0u);
    // The reduction loses the sign of zero.
    return select(select(y, -y, r.quadrant >= 2u), x, x == 0.0);
}

fn cos_f32(x: f32) -> f32 {
    if !is_finite_f32(x) {
        return nan_like_f32(x);
    }
    let r = trig_reduce_f32(x);
    let y = select(cos_small_f32(r.hi, r.lo), sin_small_f32(r.hi, r.lo), (r.quadrant & 1u) != 0u);
    return select(y, -y, r.quadrant == 1u || r.quadrant == 2u);
}

fn tan_f32(x: f32) -> f32 {
    if !is_finite_f32(x) {
        return nan_like_f32(x);
    }
    let r = trig_reduce_f32(x);
    let z = r.hi * r.hi;
    let p = (((((9.38540185543e-3 * z + 3.11992232697e-3) * z + 2.44301354525e-2) * z
        + 5.34112807005e-2) * z
        + 1.33387994085e-1) * z + 3.33331568548e-1) * z;
    let t = r.hi + (r.hi * p + r.lo * (1.0 + z));
    return select(select(t, -1.0 / t, (r.quadrant & 1u) != 0u), x, x == 0.0);
}
