// Numbers of 52 random bits, two words each, and standard normal numbers of four words. They are
// computed in float32 and agree with TensorFlow's float64 results to float32's precision. The
// reductions are exact, since they are done in integers.

// u = m * 2^-52 in [0, 1), m = the lower 20 bits of `words.x` and all of `words.y`.
fn wide_unit_f32(words: vec2<u32>) -> f32 {
    return f32(words.x & 0xfffffu) * 9.5367431640625e-7 + f32(words.y) * 2.220446049250313e-16;
}

// 1 - u, without loss near 1.
fn wide_rest_f32(words: vec2<u32>) -> f32 {
    let low = 0u - words.y;
    let high = 0x100000u - (words.x & 0xfffffu) - select(1u, 0u, words.y == 0u);
    return f32(high) * 9.5367431640625e-7 + f32(low) * 2.220446049250313e-16;
}

// ln u
fn wide_log_f32(words: vec2<u32>) -> f32 {
    if (words.x & 0x80000u) != 0u {
        return log1p_f32(-wide_rest_f32(words));
    }
    return log_f32(wide_unit_f32(words));
}

// ln(1 - u)
fn wide_log_rest_f32(words: vec2<u32>) -> f32 {
    if (words.x & 0x80000u) != 0u {
        return log_f32(wide_rest_f32(words));
    }
    return log1p_f32(-wide_unit_f32(words));
}

fn wide_normal_f32(words: vec4<u32>) -> vec2<f32> {
    // u counts as 1e-7 at least.
    let radius = sqrt(-2.0 * max(wide_log_f32(words.xy), -16.1180957));
    // The nearest quarter of a turn, and the rest.
    let high = words.z & 0xfffffu;
    let quarter = (high + 0x20000u) >> 18u;
    let rest = f32(i32(high) - i32(quarter << 18u)) * 9.5367431640625e-7 + f32(words.w)
        * 2.220446049250313e-16;
    let angle = 6.28318531 * rest;
    let s = sin_small_f32(angle, 0.0);
    let c = cos_small_f32(angle, 0.0);
    switch quarter & 3u {
        case 0u: { return radius * vec2<f32>(s, c); }
        case 1u: { return radius * vec2<f32>(c, -s); }
        case 2u: { return radius * vec2<f32>(-s, -c); }
        default: { return radius * vec2<f32>(-c, s); }
    }
}
