// Bilinear resizing of [image][y][x][channel], computed in f32.
// Grid: one invocation per element of dst. Bindings: src, dst.

fn value(i: u32) -> f32 {
    let c = i % p.channels;
    let pixel = i / p.channels;
    let x = linear_tap(pixel % p.out_width, p.scale_x, p.width);
    let line = pixel / p.out_width;
    let y = linear_tap(line % p.out_height, p.scale_y, p.height);
    let image = (line / p.out_height) * p.height;
    let above = (image + y.low) * p.width;
    let below = (image + y.high) * p.width;
    let top_left = f32(load_src((above + x.low) * p.channels + c));
    let top_right = f32(load_src((above + x.high) * p.channels + c));
    let bottom_left = f32(load_src((below + x.low) * p.channels + c));
    let bottom_right = f32(load_src((below + x.high) * p.channels + c));
    let top = top_left + (top_right - top_left) * x.lerp;
    let bottom = bottom_left + (bottom_right - bottom_left) * x.lerp;
    return top + (bottom - top) * y.lerp;
}
