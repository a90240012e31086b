// The place where position `x` of a resized axis reads the image, whose extent along the axis is
// `extent`.
// p.half is 0.5 with half pixel centers, else 0; p.round is 1 with aligned corners.

struct Linear {
    low: u32,
    high: u32,
    lerp: f32,
}

fn linear_tap(x: u32, scale: f32, extent: u32) -> Linear {
    let at = (f32(x) + p.half) * scale - p.half;
    let below = floor(at);
    let last = f32(extent - 1u);
    return Linear(u32(clamp(below, 0.0, last)), u32(clamp(ceil(at), 0.0, last)), at - below);
}

fn nearest_tap(x: u32, scale: f32, extent: u32) -> u32 {
    let at = (f32(x) + p.half) * scale;
    let below = floor(at);
    // Ties go up.
    let up = u32(p.round == 1u && at - below >= 0.5);
    return min(u32(below) + up, extent - 1u);
}
