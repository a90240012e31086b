// Numbers of 52 random bits, two words each, and standard normal numbers of four words, as
// TensorFlow computes them in float64.

// u = m * 2^-52 in [0, 1), m = the lower 20 bits of `words.x` and all of `words.y`.
fn wide_unit_f64(words: vec2<u32>) -> f64 {
    let m = (u64((words.x & 0xfffffu) | 0x3ff00000u) << 32u) | (u64(words.y) & 0xfffffffflu);
    return bitcast<f64>(m) - 1.0lf;
}

// ln u
fn wide_log_f64(words: vec2<u32>) -> f64 {
    return log_f64(wide_unit_f64(words));
}

// ln(1 - u)
fn wide_log_rest_f64(words: vec2<u32>) -> f64 {
    return log1p_f64(-wide_unit_f64(words));
}

fn wide_normal_f64(words: vec4<u32>) -> vec2<f64> {
    let radius = sqrt(-2.0lf * log_f64(max(wide_unit_f64(words.xy), 1e-7lf)));
    // The nearest quarter of a turn, and the rest, which is exact.
    let quarter = ((words.z & 0xfffffu) + 0x20000u) >> 18u;
    let rest = wide_unit_f64(words.zw) - 0.25lf * f64(quarter);
    let angle = 6.28318530717958648lf * rest;
    let s = radius * sin_small_f64(angle, 0.0lf);
    let c = radius * cos_small_f64(angle, 0.0lf);
    switch quarter & 3u {
        case 0u: { return vec2<f64>(s, c); }
        case 1u: { return vec2<f64>(c, -s); }
        case 2u: { return vec2<f64>(-s, -c); }
        default: { return vec2<f64>(-c, s); }
    }
}
