// Standard normal numbers with those of magnitude 2 and above drawn again: each group takes samples from the 256 that are
// reserved for it until it has four numbers. 1,024 candidates, of which 95 in 100 fit, always suffice.

fn draw(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    var kept: array<f32, 4>;
    var count = 0u;
    for (var sample = 0u; sample < 256u && count < 4u; sample += 1u) {
        let bits = philox(philox_skip(counter, vec2<u32>(sample, 0u)), key);
        let candidates = vec4<f32>(box_muller(bits.xy), box_muller(bits.zw));
        for (var k = 0u; k < 4u && count < 4u; k += 1u) {
            if abs(candidates[k]) < 2.0f {
                kept[count] = candidates[k];
                count += 1u;
            }
        }
    }
    return encode(vec4<f32>(kept[0], kept[1], kept[2], kept[3]));
}
