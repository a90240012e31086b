// One axis of the gradient of resizing: dst[o, i, k] = sum over x of weight(x, i) * src[o, x, k], where x is a resized position.
// Grid: one invocation per stored unit of dst, which is (outer, p.extent, p.inner); src is (outer, p.resized, p.inner).

// What resized position x took of position i.
fn weight(x: u32, i: u32) -> f32 {
    {{WEIGHT}}
}

fn value(e: u32) -> {{REAL}} {
    let k = e % p.inner;
    let i = (e / p.inner) % p.extent;
    let line = (e / (p.inner * p.extent)) * p.resized;
    // Positions that can read i, with room for rounding; the ends of the axis are also read from beyond.
    var first = 0u;
    var end = p.resized;
    if p.scale > 0.0 {
        let limit = f32(p.resized);
        if i > 0u {
            first = u32(clamp((f32(i) - 1.5) / p.scale - 2.0, 0.0, limit));
        }
        if i + 1u < p.extent {
            end = min(end, u32(clamp((f32(i) + 1.5) / p.scale + 3.0, 0.0, limit)));
        }
    }
    var sum = {{REAL}}();
    for (var x = first; x < end; x += 1u) {
        let w = weight(x, i);
        if w != 0.0 {
            sum += {{REAL}}(w) * {{REAL}}(load_src((line + x) * p.inner + k));
        }
    }
    return sum;
}
