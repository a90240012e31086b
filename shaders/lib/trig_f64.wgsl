// sin, cos and tan of float64 within 2 ulp for every argument. After FreeBSD's msun: Copyright (C)
// 1993 by Sun Microsystems, Inc. All rights reserved. Permission to use, copy, modify, and
// distribute this software is freely granted, provided that this notice is preserved.

// x = (quadrant + 4 n) pi/2 + hi + lo with |hi| <= pi/4 and a small lo.
struct TrigReductionF64 {
    quadrant: u32,
    hi: f64,
    lo: f64,
}

// High 64 bits of a * b.
fn multiply_high_u64(a: u64, b: u64) -> u64 {
    let al = a & 0xfffffffflu;
    let ah = a >> 32u;
    let bl = b & 0xfffffffflu;
    let bh = b >> 32u;
    let middle = ah * bl + ((al * bl) >> 32u);
    let low = (middle & 0xfffffffflu) + al * bh;
    return ah * bh + (middle >> 32u) + (low >> 32u);
}

// Word k of 2/pi = 0.W1 W2 ...; word 0 is the part before the point.
fn two_over_pi_word_f64(k: u32) -> u64 {
    switch k {
        case 0u: { return 0lu; }
        case 1u: { return 0xa2f9836e4e441529lu; }
        case 2u: { return 0xfc2757d1f534ddc0lu; }
        case 3u: { return 0xdb6295993c439041lu; }
        case 4u: { return 0xfe5163abdebbc561lu; }
        case 5u: { return 0xb7246e3a424dd2e0lu; }
        case 6u: { return 0x06492eea09d1921clu; }
        case 7u: { return 0xfe1deb1cb129a73elu; }
        case 8u: { return 0xe88235f52ebb4484lu; }
        case 9u: { return 0xe99c7026b45f7e41lu; }
        case 10u: { return 0x3991d639835339f4lu; }
        case 11u: { return 0x9c845f8bbdf9283blu; }
        case 12u: { return 0x1ff897ffde05980flu; }
        case 13u: { return 0xef2f118b5a0a6d1flu; }
        case 14u: { return 0x6d367ecf27cb09b7lu; }
        case 15u: { return 0x4f463f669e5fea2dlu; }
        case 16u: { return 0x7527bac7ebe5f17blu; }
        case 17u: { return 0x3d0739f78a5292ealu; }
        case 18u: { return 0x6bfb5fb11f8d5d08lu; }
        case 19u: { return 0x56033046fc7b6bablu; }
        default: { return 0xf0cfbc209af4361dlu; }
    }
}

// Payne and Hanek, for |x| >= 2^20: multiplies the significand by those bits of 2/pi that matter
// modulo 4.
fn trig_reduce_large_f64(x: f64) -> TrigReductionF64 {
    let bits = bitcast<u64>(x);
    // |x| = s / 2^64 * 2^e
    let s = (bits << 11u) | 0x8000000000000000lu;
    let e = u32((bits >> 52u) & 0x7fflu) - 1022u;
    // g = 192 bits of 2/pi * 2^e, 66 of them before the point: s * g / 2^190 is x * 2/pi modulo 4.
    let first = e - 2u;
    let word = first >> 6u;
    let shift = first & 63u;
    var g0 = two_over_pi_word_f64(word);
    var g1 = two_over_pi_word_f64(word + 1u);
    var g2 = two_over_pi_word_f64(word + 2u);
    var g3 = two_over_pi_word_f64(word + 3u);
    if shift != 0u {
        g0 = (g0 << shift) | (g1 >> (64u - shift));
        g1 = (g1 << shift) | (g2 >> (64u - shift));
        g2 = (g2 << shift) | (g3 >> (64u - shift));
        g3 = (g3 << shift) | (two_over_pi_word_f64(word + 4u) >> (64u - shift));
    }
    // The low 256 bits of the product, without the last 64 bits.
    let low2 = s * g2;
    let p2 = low2 + multiply_high_u64(s, g3);
    let high2 = multiply_high_u64(s, g2) + select(0lu, 1lu, p2 < low2);
    let low1 = s * g1;
    let p1 = low1 + high2;
    let p0 = s * g0 + multiply_high_u64(s, g1) + select(0lu, 1lu, p1 < low1);
    var quadrant = u32(p0 >> 62u);
    var f0 = (p0 << 2u) | (p1 >> 62u);
    var f1 = (p1 << 2u) | (p2 >> 62u);
    var f2 = p2 << 2u;
    var negative = false;
    if (f0 >> 63u) != 0lu {
        // The nearer multiple is above: negate the fraction.
        quadrant = (quadrant + 1u) & 3u;
        negative = true;
        f2 = ~f2 + 1lu;
        f1 = ~f1 + select(0lu, 1lu, f2 == 0lu);
        f0 = ~f0 + select(0lu, 1lu, f1 == 0lu && f2 == 0lu);
    }
    // Two floats of 32 bits, and one of the remaining bits.
    var exponent = -64;
    if f0 == 0lu {
        f0 = f1;
        f1 = f2;
        exponent = -128;
    }
    let zeros = leading_zeros_u64(f0);
    if zeros > 0u && zeros < 64u {
        f0 = (f0 << zeros) | (f1 >> (64u - zeros));
        f1 = f1 << zeros;
    }
    let scale = bitcast<f64>(u64(u32(1023 + exponent - i32(zeros & 63u))) << 52u);
    let a = f64(u32(f0 >> 38u)) * 274877906944.0 * scale;
    let b = (f64(f0 & 0x3ffffffffflu) + f64(u32(f1 >> 32u)) * 2.3283064365386963e-10) * scale;
    // Times pi/2 in two parts, of 26 and 53 bits: the main product is exact.
    let main = a * 1.5707963109016418;
    let rest = b * 1.5707963109016418 + (a + b) * 1.5893254773528196e-08;
    var hi = trim_f64(main + rest);
    var lo = rest - (hi - main);
    if negative {
        hi = -hi;
        lo = -lo;
    }
    if (bits >> 63u) != 0lu {
        hi = -hi;
        lo = -lo;
        quadrant = (4u - quadrant) & 3u;
    }
    return TrigReductionF64(quadrant, hi, lo);
}

fn trig_reduce_f64(x: f64) -> TrigReductionF64 {
    let a = abs(x);
    if a < 0.7853981633974483 {
        return TrigReductionF64(0u, x, 0.0lf);
    }
    if a > 1e6 {
        return trig_reduce_large_f64(x);
    }
    // Cody and Waite: pi/2 in parts of 33 bits, so that products with k (below 2^20) are exact.
    let k = round(x * 0.6366197723675814);
    let first = x - k * 1.5707963267341256;
    let w = k * 6.077100506303966e-11;
    let second = trim_f64(first - w);
    let t = k * 2.0222662487959506e-21 - ((first - second) - w);
    let hi = trim_f64(second - t);
    let lo = (second - hi) - t;
    return TrigReductionF64(bitcast<u32>(i32(k)) & 3u, hi, lo);
}

// sin(hi + lo) for |hi| <= pi/4.
fn sin_small_f64(hi: f64, lo: f64) -> f64 {
    let z = hi * hi;
    var s = 1.58969099521155e-10lf;
    s = s * z - 2.5050760253406863e-08;
    s = s * z + 2.7557313707070068e-06;
    s = s * z - 0.0001984126982985795;
    s = s * z + 0.00833333333332249;
    let v = z * hi;
    return hi - ((z * (0.5 * lo - v * s) - lo) - v * -0.16666666666666632);
}

// cos(hi + lo) for |hi| <= pi/4.
fn cos_small_f64(hi: f64, lo: f64) -> f64 {
    let z = hi * hi;
    var s = -1.1359647557788195e-11lf;
    s = s * z + 2.087572321298175e-09;
    s = s * z - 2.7557314351390663e-07;
    s = s * z + 2.480158728947673e-05;
    s = s * z - 0.001388888888887411;
    s = s * z + 0.0416666666666666;
    let half = 0.5 * z;
    let main = trim_f64(1.0 - half);
    return main + (((1.0 - main) - half) + (z * z * s - hi * lo));
}

fn sin_f64(x: f64) -> f64 {
    if !is_finite_f64(x) {
        return nan_like_f64(x);
    }
    let r = trig_reduce_f64(x);
    let y = select(sin_small_f64(r.hi, r.lo), cos_small_f64(r.hi, r.lo), (r.quadrant & 1u) != 0u);
    // The reduction loses the sign of zero.
    return select(select(y, -y, r.quadrant >= 2u), x, x == 0.0);
}

fn cos_f64(x: f64) -> f64 {
    if !is_finite_f64(x) {
        return nan_like_f64(x);
    }
    let r = trig_reduce_f64(x);
    let y = select(cos_small_f64(r.hi, r.lo), sin_small_f64(r.hi, r.lo), (r.quadrant & 1u) != 0u);
    return select(y, -y, r.quadrant == 1u || r.quadrant == 2u);
}

fn tan_f64(x: f64) -> f64 {
    if !is_finite_f64(x) {
        return nan_like_f64(x);
    }
    if x == 0.0lf {
        return x;
    }
    let reduced = trig_reduce_f64(x);
    let is_odd = (reduced.quadrant & 1u) != 0u;
    var hi = reduced.hi;
    var lo = reduced.lo;
    // Near pi/4, the tangent of the difference from pi/4 is used.
    let is_big = abs(hi) >= 0.6743316650390625;
    let sign = copy_sign_f64(1.0lf, hi);
    if is_big {
        hi = (0.7853981633974483 - sign * hi) + (3.061616997868383e-17 - sign * lo);
        lo = 0.0lf;
    }
    let z = hi * hi;
    var s = 2.590730518636337e-05lf;
    s = s * z - 1.8558637485527546e-05;
    s = s * z + 7.140724913826082e-05;
    s = s * z + 7.817944429395571e-05;
    s = s * z + 0.0002464631348184699;
    s = s * z + 0.0005880412408202641;
    s = s * z + 0.0014562094543252903;
    s = s * z + 0.0035920791075913124;
    s = s * z + 0.0088632398235993;
    s = s * z + 0.021869488294859542;
    s = s * z + 0.05396825397622605;
    s = s * z + 0.13333333333320124;
    let cube = z * hi;
    let r = lo + z * (cube * s + lo) + cube * 0.3333333333333341;
    let w = hi + r;
    if is_big {
        let one = select(1.0lf, -1.0lf, is_odd);
        return sign * (one - 2.0 * (hi + (r - w * w / (w + one))));
    }
    if !is_odd {
        return w;
    }
    // -1 / (hi + r), with the error of the quotient corrected.
    let w_high = high_bits_f64(w);
    let w_low = r - (w_high - hi);
    let q = -1.0 / w;
    let q_high = high_bits_f64(q);
    return q_high + q * (1.0 + q_high * w_high + q_high * w_low);
}
