// Casts from float64 that drop the low bits of the significand instead of rounding. The result goes
// through f32, which holds it.

fn drop_bits_f64(x: f64, bits: u64) -> f64 {
    return select(bitcast<f64>(bitcast<u64>(x) & ~bits), x, is_nan_f64(x));
}

fn truncate_f64_to_f32(x: f64) -> f32 {
    return f32(drop_bits_f64(x, 0x1ffffffflu));
}

fn truncate_f64_to_f16(x: f64) -> f32 {
    return f32(drop_bits_f64(x, 0x3fffffffffflu));
}

fn truncate_f64_to_bf16(x: f64) -> f32 {
    return f32(drop_bits_f64(x, 0x1ffffffffffflu));
}
