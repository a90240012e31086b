// Nearest-neighbor resizing of [image][y][x][channel] for elements of any type.
// Grid: one invocation per stored unit of dst. Bindings: src, dst.

fn value(i: u32) -> {{ELEMENT}} {
    let c = i % p.channels;
    let pixel = i / p.channels;
    let x = nearest_tap(pixel % p.out_width, p.scale_x, p.width);
    let line = pixel / p.out_width;
    let y = nearest_tap(line % p.out_height, p.scale_y, p.height);
    return load_src((((line / p.out_height) * p.height + y) * p.width + x) * p.channels + c);
}
