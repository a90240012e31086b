// The gradient of each position of each crop for the four numbers of its box: sums[column, row,
// box, 4], over the channels in f32. Grid: one invocation per position (p.count of them). Bindings:
// grads, image, boxes, indices, sums.

// Parts of a position's derivative that go to the low and to the high end of a box.
fn shares(i: u32, extent: u32, crop: u32) -> vec2<f32> {
    let last = f32(extent - 1u);
    if crop < 2u {
        return vec2<f32>(0.5 * last);
    }
    let high = f32(i) * (last / f32(crop - 1u));
    return vec2<f32>(last - high, high);
}

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let b = t % p.box_count;
    let row = (t / p.box_count) % p.crop_height;
    let column = t / (p.box_count * p.crop_height);
    let window = box_of(b);
    let y = tap(row, window.low.x, window.high.x, p.height, p.crop_height);
    let x = tap(column, window.low.y, window.high.y, p.width, p.crop_width);
    var dy = 0.0;
    var dx = 0.0;
    if y.inside && x.inside {
        let image = u32(load_indices(b)) * p.height;
        let above = (image + y.low) * p.width;
        let below = (image + y.high) * p.width;
        let crop = ((b * p.crop_height + row) * p.crop_width + column) * p.depth;
        for (var c = 0u; c < p.depth; c += 1u) {
            let top_left = f32(load_image((above + x.low) * p.depth + c));
            let top_right = f32(load_image((above + x.high) * p.depth + c));
            let bottom_left = f32(load_image((below + x.low) * p.depth + c));
            let bottom_right = f32(load_image((below + x.high) * p.depth + c));
            let g = load_grads(crop + c);
            dy += g * ((1.0 - x.lerp) * (bottom_left - top_left) + x.lerp * (bottom_right
                - top_right));
            dx += g * ((1.0 - y.lerp) * (top_right - top_left) + y.lerp * (bottom_right
                - bottom_left));
        }
    }
    let sy = dy * shares(row, p.height, p.crop_height);
    let sx = dx * shares(column, p.width, p.crop_width);
    store_sums(4u * t, sy.x);
    store_sums(4u * t + 1u, sx.x);
    store_sums(4u * t + 2u, sy.y);
    store_sums(4u * t + 3u, sx.y);
}
