// Every value of the type, 32 or 64 bits wide: the random bits themselves.

fn draw(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    return philox(counter, key);
}
