// sums[image, y, x, c] adds the gradients of the positions that read this element, in the
// crops of boxes p.low0 to p.high0, rows p.low1 to p.high1 and columns p.low2 to p.high2. The first
// pass starts at zero. Grid: one invocation per element of sums. Bindings: grads, boxes, indices,
// sums.

// The crop's positions that can read `at`: a range that holds them all, with room for rounding.
fn candidates(at: u32, low: f32, high: f32, extent: u32, crop: u32) -> vec2<u32> {
    let scale = crop_scale(low, high, extent, crop);
    // Nearly flat boxes, and boxes that are not finite, try all positions.
    if crop < 2u || !(abs(scale) > 1e-3) {
        return vec2<u32>(0u, crop);
    }
    let start = low * f32(extent - 1u);
    let a = (f32(at) - 1.0 - start) / scale;
    let b = (f32(at) + 1.0 - start) / scale;
    let limit = f32(crop);
    return vec2<u32>(u32(clamp(floor(min(a, b)) - 1.0, 0.0, limit)), u32(clamp(ceil(max(a,
        b)) + 2.0, 0.0, limit)));
}

// The weight with which a tap reads position `at`.
fn weight(t: Tap, at: u32) -> f32 {
    if !t.inside {
        return 0.0;
    }
    if p.bilinear == 0u {
        return select(0.0, 1.0, nearest(t) == at);
    }
    return select(0.0, 1.0 - t.lerp, t.low == at) + select(0.0, t.lerp, t.high == at);
}

fn value(i: u32) -> {{REAL}} {
    let c = i % p.depth;
    let pixel = i / p.depth;
    let x = pixel % p.width;
    let line = pixel / p.width;
    let y = line % p.height;
    let image = line / p.height;
    var sum = {{REAL}}();
    if p.is_first == 0u {
        sum = load_sums(i);
    }
    for (var b = p.low0; b < p.high0; b += 1u) {
        if u32(load_indices(b)) != image {
            continue;
        }
        let window = box_of(b);
        let rows = candidates(y, window.low.x, window.high.x, p.height, p.crop_height);
        let candidate = candidates(x, window.low.y, window.high.y, p.width, p.crop_width);
        let columns = vec2<u32>(max(candidate.x, p.low2), min(candidate.y, p.high2));
        for (var row = max(rows.x, p.low1); row < min(rows.y, p.high1); row += 1u) {
            let wy = weight(tap(row, window.low.x, window.high.x, p.height, p.crop_height), y);
            if wy == 0.0 {
                continue;
            }
            for (var column = columns.x; column < columns.y; column += 1u) {
                let wx = weight(tap(column, window.low.y, window.high.y, p.width, p.crop_width), x);
                if wx != 0.0 {
                    let g = load_grads(((b * p.crop_height + row) * p.crop_width + column) * p.depth
                        + c);
                    sum += {{REAL}}(wx * (wy * g));
                }
            }
        }
    }
    return sum;
}
