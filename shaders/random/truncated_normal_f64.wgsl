// Standard normal numbers with those of magnitude 2 and above drawn again: each group takes samples
// from the 128 that are reserved for it until it has two numbers. 256 candidates, of which 95 in
// 100 fit, always suffice.

fn draw(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    var kept: array<f64, 2>;
    var count = 0u;
    for (var sample = 0u; sample < 128u && count < 2u; sample += 1u) {
        let candidates = wide_normal_f64(philox(philox_skip(counter, vec2<u32>(sample, 0u)), key));
        for (var k = 0u; k < 2u && count < 2u; k += 1u) {
            if abs(candidates[k]) < 2.0lf {
                kept[count] = candidates[k];
                count += 1u;
            }
        }
    }
    return encode(vec2<f64>(kept[0], kept[1]));
}
