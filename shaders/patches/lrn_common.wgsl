// The neighbours of element `i` along the channels: first and end.
fn neighbours(i: u32) -> vec2<u32> {
    let c = i % p.depth;
    let start = i - c;
    return vec2<u32>(start + max(c, p.radius) - p.radius, start + min(c + p.radius + 1u, p.depth));
}
