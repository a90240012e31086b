// requires: bf16_bits
// `v` as it comes back from memory as bfloat16.
fn round_bf16(v: f32) -> f32 {
    return bitcast<f32>(bf16_bits(v) << 16u);
}
