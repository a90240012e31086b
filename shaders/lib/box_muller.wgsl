// Two independent standard normal numbers from 64 random bits by the Box-Muller transform, as
// TensorFlow computes them: u = max(m * 2^-23, 1e-7), v = 2 pi * n * 2^-23 rounded to float32, with
// m and n the lower 23 bits of the words; then sqrt(-2 ln u) * (sin v, cos v).
//
// Near a zero of sine or cosine the result depends on how v was rounded, so v is rounded and
// reduced in integers: only short polynomials remain for the driver's floating point, and these
// stay within two ulp however the driver contracts or reorders them.

// -2 ln(m * 2^-23), or -2 ln(1e-7) for m = 0.
fn minus_two_log(m: u32) -> f32 {
    if m == 0u {
        return 32.236191f;
    }
    // m = 2^e * x with x in [sqrt(1/2), sqrt(2)): e = 0 just below 2^23, where the logarithm itself
    // is small.
    let bits = bitcast<u32>(f32(m));
    let upper = (bits & 0x7fffffu) > 0x3504f3u;
    let e = f32(i32(bits >> 23u) - 150 + select(0, 1, upper));
    let x = bitcast<f32>((bits & 0x7fffffu) | select(0x3f800000u, 0x3f000000u, upper));
    // ln(1 + f) = 2 artanh(s) with s = f / (2 + f), |s| < 0.172, rearranged so that the leading
    // term f is exact.
    let f = x - 1.0f;
    let s = f / (2.0f + f);
    let z = s * s;
    let series = z * (0.6666667f + z * (0.4f + z * (0.2857143f + z * 0.22222222f)));
    let half_square = 0.5f * f * f;
    // ln 2 in two parts; the product of the first with e is exact.
    let log = e * 0.69313812f + (f - (half_square - (s * (half_square + series) + e
        * 9.058001e-6f)));
    return -2.0f * log;
}

// Sine and cosine of 2 pi * n * 2^-23, rounded to float32 before.
fn sin_cos_turn(n: u32) -> vec2<f32> {
    // 2 pi, rounded to float64 as in TensorFlow, times 2^61.
    let turn_low = 0x2168c000u;
    let turn_high = 0xc90fdaa2u;
    // 96 bits of product; its unit is 2^-84.
    let low = n * turn_low;
    let carry_in = mul_wide(n, turn_low).y;
    let middle = n * turn_high + carry_in;
    let high = mul_wide(n, turn_high).y + select(0u, 1u, middle < carry_in);
    // `high` has at most 23 bits; when it is 0 the leading bit is bit 63. Bits 31..8 of `leading`
    // are the significand, bit 7 rounds it.
    let shift = countLeadingZeros(high);
    var leading = middle;
    if shift < 32u {
        leading = (high << shift) | (middle >> (32u - shift));
    }
    let significand = (leading >> 8u) + ((leading >> 7u) & 1u);

    // Nearest multiple of pi / 2, and the rest r in [-pi/4, pi/4].
    let quadrant = (n + 0x100000u) >> 21u;
    var r: f32;
    if quadrant == 0u {
        r = f32(significand) * bitcast<f32>((115u - shift) << 23u);
    } else {
        // The angle is at least pi / 4, so shift is 9 to 12. Difference of 64-bit numbers in units
        // of 2^-60. Multiples of pi / 2, the lower word first.
        var quarter = vec2<u32>(0x442d1847u, 0x1921fb54u);
        if quadrant == 2u {
            quarter = vec2<u32>(0x885a308du, 0x3243f6a8u);
        } else if quadrant == 3u {
            quarter = vec2<u32>(0xcc8748d4u, 0x4b65f1fcu);
        } else if quadrant == 4u {
            quarter = vec2<u32>(0x10b4611au, 0x6487ed51u);
        }
        var rest_low = 0u - quarter.x;
        var rest_high = (significand << (16u - shift)) - quarter.y - 1u;
        let negative = rest_high >= 0x80000000u;
        if negative {
            rest_high = ~rest_high;
            rest_low = 0u - rest_low;
        }
        let magnitude = f32(rest_high) * 3.7252903e-9f + f32(rest_low) * 8.6736174e-19f;
        r = select(magnitude, -magnitude, negative);
    }

    let z = r * r;
    let sine = r + r * z * (-0.16666667f + z * (0.008333334f + z * (-1.984127e-4f + z
        * 2.7557319e-6f)));
    let half_square = 0.5f * z;
    let head = 1.0f - half_square;
    let tail = z * z * (0.041666668f + z * (-0.0013888889f + z * (2.4801587e-5f + z
        * -2.7557319e-7f)));
    let cosine = head + (((1.0f - head) - half_square) + tail);
    switch quadrant & 3u {
        case 1u: {
            return vec2<f32>(cosine, -sine);
        }
        case 2u: {
            return vec2<f32>(-sine, -cosine);
        }
        case 3u: {
            return vec2<f32>(-cosine, sine);
        }
        default: {
            return vec2<f32>(sine, cosine);
        }
    }
}

fn box_muller(bits: vec2<u32>) -> vec2<f32> {
    return sqrt(minus_two_log(bits.x & 0x7fffffu)) * sin_cos_turn(bits.y & 0x7fffffu);
}
