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
