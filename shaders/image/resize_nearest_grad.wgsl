// The gradient of nearest-neighbor resizing: each position of [image][y][x][channel] sums the
// gradients of all positions that read it, line by line. Grid: one invocation per stored unit, or
// four elements, of dst; p.channels counts the units that an invocation computes. Bindings: src,
// dst.

fn value(e: u32) -> {{VALUE}} {
    let pixel = quotient(e, p.channels);
    let c = e - pixel * p.channels;
    let line = quotient(pixel, p.width);
    let x = pixel - line * p.width;
    let image = quotient(line, p.height);
    let y = line - image * p.height;
    let rows = readers(y, p.scale_y, p.height, p.out_height);
    let columns = readers(x, p.scale_x, p.width, p.out_width);
    var sum = {{VALUE}}();
    for (var row = rows.x; row < rows.y; row += 1u) {
        if nearest_tap(row, p.scale_y, p.height) == y {
            var at = ((image * p.out_height + row) * p.out_width + columns.x) * p.channels + c;
            var of_line = {{VALUE}}();
            for (var column = columns.x; column < columns.y; column += 1u) {
                if nearest_tap(column, p.scale_x, p.width) == x {
                    of_line += {{VALUE}}({{LOAD}}_src(at));
                }
                at += p.channels;
            }
            sum += of_line;
        }
    }
    return sum;
}
