// Nearest-neighbor resizing of [image][y][x][channel] for elements of any type.
// Grid: one invocation per stored unit of dst. Bindings: src, dst.

fn value(i: u32) -> {{ELEMENT}} {
    let pixel = quotient(i, p.channels);
    let c = i - pixel * p.channels;
    let line = quotient(pixel, p.out_width);
    let x = nearest_tap(pixel - line * p.out_width, p.scale_x, p.width);
    let image = quotient(line, p.out_height);
    let y = nearest_tap(line - image * p.out_height, p.scale_y, p.height);
    return load_src(((image * p.height + y) * p.width + x) * p.channels + c);
}
