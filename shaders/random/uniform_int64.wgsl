// Uniform in [low, low + range) in 64 bits: each pair of words modulo the range, as in TensorFlow.
// The sum wraps.

fn bounded(bits: vec2<u32>) -> vec2<u32> {
    let v = join(p.low, p.low_high) + join(bits.x, bits.y) % join(p.range, p.range_high);
    return vec2<u32>(u32(v & 0xfffffffflu), u32(v >> 32u));
}

// The loop goes over two pairs: unrolled, each of the two divisions takes 80 scalar registers.
fn draw(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    var words = philox(counter, key);
    for (var pair = 0u; pair < rounds(2u); pair += 1u) {
        words = vec4<u32>(words.zw, bounded(words.xy));
    }
    return words;
}
