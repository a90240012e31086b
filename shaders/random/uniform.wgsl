// Uniform in [0, 1): the lower {{BITS}} bits of each word, as a multiple of 2^-{{BITS}}.

fn draw(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    return encode(vec4<f32>(philox(counter, key) & vec4<u32>((1u << {{BITS}}u) - 1u)) * {{UNIT}}f);
}
