// `v` after a store to memory as bfloat16 and a load.
fn round_bf16(v: f32) -> f32 {
    return bitcast<f32>(bf16_high(v));
}
