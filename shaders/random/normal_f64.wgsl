// Standard normal numbers, two from each sample.

fn draw(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    return encode(wide_normal_f64(philox(counter, key)));
}
