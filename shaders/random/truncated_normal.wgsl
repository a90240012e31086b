// Standard normal numbers with those of magnitude 2 and above drawn again: each group takes samples
// from the 256 that are reserved for it until it has four numbers. 1,024 candidates, of which 95 in
// 100 fit, always suffice.

// The first four of some numbers whose magnitude is below 2.
struct Kept {
    values: vec4<f32>,
    count: u32,
}

// Keeps a number that fits in the next place, unless all are taken.
fn keep(kept: Kept, v: f32) -> Kept {
    let fits = abs(v) < 2.0f;
    let place = vec4<u32>(kept.count) == vec4<u32>(0u, 1u, 2u, 3u);
    return Kept(select(kept.values, vec4<f32>(v), place & vec4<bool>(fits)), kept.count + select(0u,
        1u, fits));
}

fn draw(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    var kept = Kept();
    for (var sample = 0u; sample < 256u && kept.count < 4u; sample += 1u) {
        var bits = philox(philox_skip(counter, vec2<u32>(sample, 0u)), key);
        for (var pair = 0u; pair < 2u; pair += 1u) {
            let v = box_muller(bits.xy);
            kept = keep(keep(kept, v.x), v.y);
            bits = bits.zwxy;
        }
    }
    return encode(kept.values);
}
