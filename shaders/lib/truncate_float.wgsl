// Casts that drop the low bits of the significand instead of rounding.

fn truncate_f32_to_bf16(x: f32) -> f32 {
    return select(bitcast<f32>(bitcast<u32>(x) & 0xffff0000u), x, is_nan_f32(x));
}

fn truncate_f32_to_f16(x: f32) -> f32 {
    return select(bitcast<f32>(bitcast<u32>(x) & 0xffffe000u), x, is_nan_f32(x));
}

// The 3 low bits of a binary16 significand, whose subnormals are normal in f32.
fn truncate_f16_to_bf16(x: f32) -> f32 {
    if abs(x) < 6.103515625e-5 {
        return trunc(x * 2097152.0) * 4.76837158203125e-7;
    }
    return truncate_f32_to_bf16(x);
}

// binary16 has the longer significand: there is nothing to drop.
fn truncate_bf16_to_f16(x: f32) -> f32 {
    return x;
}
