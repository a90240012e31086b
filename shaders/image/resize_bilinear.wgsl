// Bilinear resizing of [image][y][x][channel], computed in f32.
// Grid: one invocation per element of dst, or per four elements; p.channels counts these units.
// Bindings: src, dst.

fn value(i: u32) -> {{VALUE}} {
    let pixel = quotient(i, p.channels);
    let c = i - pixel * p.channels;
    let line = quotient(pixel, p.out_width);
    let x = linear_tap(pixel - line * p.out_width, p.scale_x, p.width);
    let image = quotient(line, p.out_height);
    let y = linear_tap(line - image * p.out_height, p.scale_y, p.height);
    let above = (image * p.height + y.low) * p.width;
    let below = (image * p.height + y.high) * p.width;
    let top_left = {{VALUE}}({{LOAD}}_src((above + x.low) * p.channels + c));
    let top_right = {{VALUE}}({{LOAD}}_src((above + x.high) * p.channels + c));
    let bottom_left = {{VALUE}}({{LOAD}}_src((below + x.low) * p.channels + c));
    let bottom_right = {{VALUE}}({{LOAD}}_src((below + x.high) * p.channels + c));
    let top = top_left + (top_right - top_left) * x.lerp;
    let bottom = bottom_left + (bottom_right - bottom_left) * x.lerp;
    return top + (bottom - top) * y.lerp;
}
