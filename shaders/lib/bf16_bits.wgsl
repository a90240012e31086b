// The 16 bits of `v` as bfloat16, rounded to nearest even; NaN stays a quiet NaN.
fn bf16_bits(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
    return select(rounded, (bits >> 16u) | 0x40u, (bits & 0x7fffffffu) > 0x7f800000u);
}
