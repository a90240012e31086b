// `f16_bits` and `f16_words` where the driver's conversions are known to round to nearest even.
fn f16_bits(v: f32) -> u32 {
    return pack2x16float(vec2(f32(f16(v)), 0.0));
}

fn f16_words(v: vec4<f32>) -> vec2<u32> {
    let halves = vec4<f32>(vec4<f16>(v));
    return vec2(pack2x16float(halves.xy), pack2x16float(halves.zw));
}
