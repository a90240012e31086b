// Uniform in [low, low + range) in 64 bits: each pair of words modulo the range, as TensorFlow does
// it. The sum wraps.

fn bounded(bits: vec2<u32>) -> vec2<u32> {
    let v = join(p.low, p.low_high) + join(bits.x, bits.y) % join(p.range, p.range_high);
    return vec2<u32>(u32(v & 0xfffffffflu), u32(v >> 32u));
}

fn draw(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    let bits = philox(counter, key);
    return vec4<u32>(bounded(bits.xy), bounded(bits.zw));
}
