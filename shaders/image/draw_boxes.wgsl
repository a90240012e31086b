// y is x with the outlines of boxes p.first to p.end, of p.box_count for each image, whose corners
// are (top, left, bottom, right) as shares of the image; box i has color i mod p.rows. An edge
// outside of the image is not drawn, nor is a box whose corners are the wrong way around. Grid:
// map.

// A coordinate without its fraction. Values that no 64-bit integer holds, and NaN, give the lowest
// such integer.
fn whole(v: f32) -> f32 {
    return select(trunc(v), -9.2233720e18, (bitcast<u32>(v) & 0x7fffffffu) >= 0x5f000000u);
}

fn is_on(image: u32, i: u32, row: f32, column: f32, last_row: f32, last_column: f32) -> bool {
    let at = (image * p.box_count + i) * 4u;
    let top = whole(load_boxes(at) * last_row);
    let left = whole(load_boxes(at + 1u) * last_column);
    let bottom = whole(load_boxes(at + 2u) * last_row);
    let right = whole(load_boxes(at + 3u) * last_column);
    let within = top <= row && row <= bottom && left <= column && column <= right;
    return within && (row == top || row == bottom || column == left || column == right);
}

fn value(e: u32) -> f32 {
    let pixel = quotient(e, p.depth);
    let channel = e - pixel * p.depth;
    let line = quotient(pixel, p.width);
    let column = f32(pixel - line * p.width);
    let image = quotient(line, p.height);
    let row = f32(line - image * p.height);
    for (var k = p.first; k < p.end; k += 1u) {
        let i = p.first + p.end - 1u - k;
        if is_on(image, i, row, column, f32(p.height - 1u), f32(p.width - 1u)) {
            return color(i % p.rows, channel);
        }
    }
    return load_x(e);
}
