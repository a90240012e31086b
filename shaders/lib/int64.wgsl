// 64-bit integers as their two words, the low one first, for adapters without such integers in
// shaders (src/shader/int64). `_u` is for unsigned ones, `_i` for two's complement, the rest for
// both. Divisions and shifts have the results of naga's translation of WGSL's: x / 0 is x, x % 0 is
// 0, and shifts are modulo 64. No function has a loop.

fn int64_equal(a: vec2<u32>, b: vec2<u32>) -> bool {
    return all(a == b);
}

fn int64_less_u(a: vec2<u32>, b: vec2<u32>) -> bool {
    return select(a.y < b.y, a.x < b.x, a.y == b.y);
}

fn int64_less_i(a: vec2<u32>, b: vec2<u32>) -> bool {
    return select(bitcast<i32>(a.y) < bitcast<i32>(b.y), a.x < b.x, a.y == b.y);
}

fn int64_add(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn int64_subtract(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}

fn int64_negate(a: vec2<u32>) -> vec2<u32> {
    return int64_subtract(vec2<u32>(0u, 0u), a);
}

fn int64_multiply(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let cross = (a.x & 0xffffu) * (b.x >> 16u);
    let carried = ((a.x & 0xffffu) * (b.x & 0xffffu)) >> 16u;
    let middle = carried + (cross & 0xffffu) + (a.x >> 16u) * (b.x & 0xffffu);
    let high = (a.x >> 16u) * (b.x >> 16u) + (cross >> 16u) + (middle >> 16u);
    return vec2<u32>(a.x * b.x, high + a.x * b.y + a.y * b.x);
}

fn int64_shift_left(a: vec2<u32>, by: u32) -> vec2<u32> {
    let n = by & 31u;
    let low = a.x << n;
    if (by & 32u) != 0u {
        return vec2<u32>(0u, low);
    }
    return vec2<u32>(low, (a.y << n) | ((a.x >> 1u) >> (31u - n)));
}

fn int64_shift_right_u(a: vec2<u32>, by: u32) -> vec2<u32> {
    let n = by & 31u;
    let high = a.y >> n;
    if (by & 32u) != 0u {
        return vec2<u32>(high, 0u);
    }
    return vec2<u32>((a.x >> n) | ((a.y << 1u) << (31u - n)), high);
}

fn int64_shift_right_i(a: vec2<u32>, by: u32) -> vec2<u32> {
    let n = by & 31u;
    let high = bitcast<u32>(bitcast<i32>(a.y) >> n);
    if (by & 32u) != 0u {
        return vec2<u32>(high, bitcast<u32>(bitcast<i32>(a.y) >> 31u));
    }
    return vec2<u32>((a.x >> n) | ((a.y << 1u) << (31u - n)), high);
}

// The number of zero bits above the highest 1.
fn int64_leading_zeros(a: vec2<u32>) -> u32 {
    return select(countLeadingZeros(a.y), 32u + countLeadingZeros(a.x), a.y == 0u);
}

// One digit of 16 bits of a quotient: `high` and `next` divided by `v`, whose highest bit is 1.
fn int64_digit(high: u32, next: u32, v: u32) -> u32 {
    var digit = high / (v >> 16u);
    var rest = high - digit * (v >> 16u);
    // An estimate is too large by 2 at most.
    if digit >= 0x10000u || digit * (v & 0xffffu) > ((rest << 16u) | next) {
        digit -= 1u;
        rest += v >> 16u;
        if rest < 0x10000u
            && (digit >= 0x10000u || digit * (v & 0xffffu) > ((rest << 16u) | next)) {
            digit -= 1u;
        }
    }
    return digit;
}

// Two words divided by one that is larger than the high word; the quotient has one word.
fn int64_divide_by_word(a: vec2<u32>, by: u32) -> u32 {
    let shift = countLeadingZeros(by);
    let v = by << shift;
    let u = int64_shift_left(a, shift);
    let first = int64_digit(u.y, u.x >> 16u, v);
    let rest = (u.y << 16u) + (u.x >> 16u) - first * v;
    return (first << 16u) + int64_digit(rest, u.x & 0xffffu, v);
}

fn int64_divide_u(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    if b.y == 0u {
        if b.x == 0u {
            return a;
        }
        let high = a.y / b.x;
        return vec2<u32>(int64_divide_by_word(vec2<u32>(a.x, a.y - high * b.x), b.x), high);
    }
    // Hacker's Delight, 9-5: an estimate from the highest 32 bits of the divisor, too large by 1
    // at most, made one less and corrected upward.
    let shift = countLeadingZeros(b.y);
    let estimate =
        int64_divide_by_word(int64_shift_right_u(a, 1u), int64_shift_left(b, shift).y);
    var quotient = estimate >> (31u - shift);
    quotient -= select(0u, 1u, quotient != 0u);
    let rest = int64_subtract(a, int64_multiply(vec2<u32>(quotient, 0u), b));
    return vec2<u32>(quotient + select(1u, 0u, int64_less_u(rest, b)), 0u);
}

fn int64_modulo_u(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    if all(b == vec2<u32>(0u, 0u)) {
        return vec2<u32>(0u, 0u);
    }
    return int64_subtract(a, int64_multiply(int64_divide_u(a, b), b));
}

fn int64_is_negative(a: vec2<u32>) -> bool {
    return (a.y >> 31u) != 0u;
}

fn int64_abs_i(a: vec2<u32>) -> vec2<u32> {
    return select(a, int64_negate(a), int64_is_negative(a));
}

fn int64_divide_i(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let quotient = int64_divide_u(int64_abs_i(a), int64_abs_i(b));
    return select(quotient, int64_negate(quotient), ((a.y ^ b.y) >> 31u) != 0u);
}

fn int64_modulo_i(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let rest = int64_modulo_u(int64_abs_i(a), int64_abs_i(b));
    return select(rest, int64_negate(rest), int64_is_negative(a));
}

fn int64_sign_i(a: vec2<u32>) -> vec2<u32> {
    let positive = vec2<u32>(select(0u, 1u, any(a != vec2<u32>(0u, 0u))), 0u);
    return select(positive, vec2<u32>(0xffffffffu, 0xffffffffu), int64_is_negative(a));
}

fn int64_min_u(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, int64_less_u(b, a));
}

fn int64_max_u(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, int64_less_u(a, b));
}

fn int64_min_i(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, int64_less_i(b, a));
}

fn int64_max_i(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return select(a, b, int64_less_i(a, b));
}

fn int64_clamp_u(a: vec2<u32>, low: vec2<u32>, high: vec2<u32>) -> vec2<u32> {
    return int64_min_u(int64_max_u(a, low), high);
}

fn int64_clamp_i(a: vec2<u32>, low: vec2<u32>, high: vec2<u32>) -> vec2<u32> {
    return int64_min_i(int64_max_i(a, low), high);
}

fn int64_of_bool(x: bool) -> vec2<u32> {
    return vec2<u32>(select(0u, 1u, x), 0u);
}

fn int64_of_u32(x: u32) -> vec2<u32> {
    return vec2<u32>(x, 0u);
}

fn int64_of_i32(x: i32) -> vec2<u32> {
    return vec2<u32>(bitcast<u32>(x), bitcast<u32>(x >> 31u));
}

fn int64_to_bool(a: vec2<u32>) -> bool {
    return any(a != vec2<u32>(0u, 0u));
}

fn int64_to_u32(a: vec2<u32>) -> u32 {
    return a.x;
}

fn int64_to_i32(a: vec2<u32>) -> i32 {
    return bitcast<i32>(a.x);
}

// Rounded to the nearest float32, ties to even, by integers alone.
fn int64_to_f32_u(a: vec2<u32>) -> f32 {
    if all(a == vec2<u32>(0u, 0u)) {
        return 0.0;
    }
    let zeros = int64_leading_zeros(a);
    let bits = int64_shift_left(a, zeros);
    let kept = bits.y >> 8u;
    let below = select(bits.y & 0xffu, bits.y & 0xffu | 1u, bits.x != 0u);
    let up = below > 0x80u || below == 0x80u && (kept & 1u) != 0u;
    // A significand that is rounded up to 2^24 carries into the exponent.
    return bitcast<f32>(((189u - zeros) << 23u) + kept + select(0u, 1u, up));
}

fn int64_to_f32_i(a: vec2<u32>) -> f32 {
    let magnitude = int64_to_f32_u(int64_abs_i(a));
    return select(magnitude, -magnitude, int64_is_negative(a));
}

// Truncates; values beyond the range give its end, NaN gives 0.
fn int64_of_f32_u(x: f32) -> vec2<u32> {
    let bits = bitcast<u32>(x);
    if bits > 0x7f800000u || bits < 0x3f800000u {
        return vec2<u32>(0u, 0u);
    }
    if bits >= 0x5f800000u {
        return vec2<u32>(0xffffffffu, 0xffffffffu);
    }
    let significand = vec2<u32>((bits & 0x7fffffu) | 0x800000u, 0u);
    let exponent = bits >> 23u;
    if exponent < 150u {
        return int64_shift_right_u(significand, 150u - exponent);
    }
    return int64_shift_left(significand, exponent - 150u);
}

fn int64_of_f32_i(x: f32) -> vec2<u32> {
    let magnitude = int64_of_f32_u(abs(x));
    let negative = (bitcast<u32>(x) >> 31u) != 0u;
    if int64_is_negative(magnitude) {
        return select(vec2<u32>(0xffffffffu, 0x7fffffffu), vec2<u32>(0u, 0x80000000u), negative);
    }
    return select(magnitude, int64_negate(magnitude), negative);
}
