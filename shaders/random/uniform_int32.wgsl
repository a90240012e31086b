// Uniform in [low, low + range): each word modulo p.range, as in TensorFlow (with that method's
// slight bias). The sum wraps.

fn draw(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    return vec4<u32>(p.low) + philox(counter, key) % vec4<u32>(p.range);
}
