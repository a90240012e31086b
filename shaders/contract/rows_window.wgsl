// Rows are kernel positions and input channels, outer steps are lines of the output, inner ones
// positions on a line: the gradient of a filter sums over all output positions. `pixel`, `image`
// and `channel_step` are the distances of neighbouring positions, images and channels in the input;
// a_step is stride2 * pixel.

struct Row {
    // Channel and kernel position on the line, relative to a line of the input; may be negative.
    at: u32,
    // Input position on the line of the first output position; negative within the padding.
    x2: i32,
    // Distances of the kernel position from the first one.
    y1: i32,
    y0: i32,
}

struct Line {
    at: u32,
    inside: bool,
}

fn a_row(m: u32) -> Row {
    let tap = m / p.channels;
    let x2 = i32(tap % p.kernel2 * p.dilation2) - i32(p.pad2);
    let y1 = i32(tap / p.kernel2 {{AXIS1}} * p.dilation1) - i32(p.pad1);
    var y0 = 0;
    {{IF_3D}}y0 = i32(tap / p.kernel2 / p.kernel1 * p.dilation0) - i32(p.pad0);
    return Row(m % p.channels * p.channel_step + u32(x2) * p.pixel, x2, y1, y0);
}

fn a_line(row: Row, o: u32) -> Line {
    let y1 = i32(o % p.out1 * p.stride1) + row.y1;
    // A negative position is a large unsigned one.
    var inside = u32(y1) < p.in1;
    var line = y1;
    var image = o / p.out1;
    {{IF_3D}}let y0 = i32(image % p.out0 * p.stride0) + row.y0;
    {{IF_3D}}image = image / p.out0;
    {{IF_3D}}inside = inside & (u32(y0) < p.in0);
    {{IF_3D}}line += y0 * i32(p.in1);
    return Line(image * p.image + u32(line) * p.in2 * p.pixel + row.at, inside);
}

// Whether position i of a line of the output reads within the input.
fn a_inside(row: Row, i: u32) -> bool {
    return u32(i32(i * p.stride2) + row.x2) < p.in2;
}
