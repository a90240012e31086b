// The weight with which resized position `x` reads position `i` of an axis.
fn weight(x: u32, i: u32, scale: f32, extent: u32) -> f32 {
    {{WEIGHT}}
}

// The first one and the end of the resized positions that can read position `i`; the ends of the
// axis are also read from beyond. Additional positions for rounding are harmless, because their
// weights are 0.
fn readers(i: u32, scale: f32, extent: u32, resized: u32) -> vec2<u32> {
    var range = vec2<u32>(0u, resized);
    if scale > 0.0 {
        let limit = f32(resized);
        let room = 0.01 + 2e-6 * limit;
        let at = f32(i) + {{SHIFT}};
        if i > 0u {
            range.x = u32(clamp(ceil((at - {{BEFORE}}) / scale - p.half - room), 0.0, limit));
        }
        if i + 1u < extent {
            range.y = min(resized, u32(clamp(floor((at + 1.0) / scale - p.half + room) + 1.0, 0.0,
                limit)));
        }
    }
    return range;
}
