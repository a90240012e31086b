// Uniform in [0, 1): 52 bits of each pair of words, as a multiple of 2^-52.

fn draw(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    let bits = philox(counter, key);
    return encode(vec2<f64>(wide_unit_f64(bits.xy), wide_unit_f64(bits.zw)));
}
