// crops[b, y, x, c] is image[indices[b]] at the position that box b gives, interpolated in f32.
// Grid: one invocation per element of crops. Bindings: image, boxes, indices, crops.

fn value(i: u32) -> f32 {
    let c = i % p.depth;
    let pixel = i / p.depth;
    let line = pixel / p.crop_width;
    let b = line / p.crop_height;
    let window = box_of(b);
    let y = tap(line % p.crop_height, window.low.x, window.high.x, p.height, p.crop_height);
    let x = tap(pixel % p.crop_width, window.low.y, window.high.y, p.width, p.crop_width);
    if !(y.inside && x.inside) {
        return p.outside;
    }
    let image = u32(load_indices(b)) * p.height;
    if p.bilinear == 0u {
        return f32(load_image(((image + nearest(y)) * p.width + nearest(x)) * p.depth + c));
    }
    let above = (image + y.low) * p.width;
    let below = (image + y.high) * p.width;
    let top_left = f32(load_image((above + x.low) * p.depth + c));
    let top_right = f32(load_image((above + x.high) * p.depth + c));
    let bottom_left = f32(load_image((below + x.low) * p.depth + c));
    let bottom_right = f32(load_image((below + x.high) * p.depth + c));
    let top = top_left + (top_right - top_left) * x.lerp;
    let bottom = bottom_left + (bottom_right - bottom_left) * x.lerp;
    return top + (bottom - top) * y.lerp;
}
