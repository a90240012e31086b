// Standard normal numbers, two by two.

fn draw(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    let bits = philox(counter, key);
    return encode(vec4<f32>(box_muller(bits.xy), box_muller(bits.zw)));
}
