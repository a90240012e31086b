// The bits of `v` rounded to bfloat16, to nearest even, as a float32; NaN stays a quiet NaN.
fn bf16_high(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    let rounded = bits + 0x7fffu + extractBits(bits, 16u, 1u);
    return select(rounded, bits | 0x400000u, (bits & 0x7fffffffu) > 0x7f800000u) & 0xffff0000u;
}

// The 16 bits of `v` as bfloat16.
fn bf16_bits(v: f32) -> u32 {
    return bf16_high(v) >> 16u;
}

// The words of four values.
fn bf16_words(v: vec4<f32>) -> vec2<u32> {
    return vec2(bf16_high(v.y) | bf16_bits(v.x), bf16_high(v.w) | bf16_bits(v.z));
}
