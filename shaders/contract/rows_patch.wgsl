// Rows are output positions of a convolution, outer steps are kernel positions, inner ones input
// channels. `pixel` and `image` are the distances of neighbouring positions and of images in the
// input.

struct Row {
    image: u32,
    // Input position under the first kernel position; negative within the padding.
    at: vec3<i32>,
}

struct Line {
    at: u32,
    inside: bool,
}

fn a_row(m: u32) -> Row {
    let x2 = m % p.out2;
    let rest = m / p.out2;
    let x1 = rest % p.out1;
    var at = vec3<i32>(0, i32(x1 * p.stride1) - i32(p.pad1), i32(x2 * p.stride2) - i32(p.pad2));
    {{IF_3D}}at.x = i32(({{OUT0}}) * p.stride0) - i32(p.pad0);
    return Row(({{IMAGE_OF}}) * p.image, at);
}

fn a_line(row: Row, o: u32) -> Line {
    let y2 = row.at.z + i32(o % p.kernel2 * p.dilation2);
    let y1 = row.at.y + i32(o / p.kernel2 {{AXIS1}} * p.dilation1);
    // A negative position is a large unsigned one.
    var inside = (u32(y2) < p.in2) & (u32(y1) < p.in1);
    var pixel = y1 * i32(p.in2) + y2;
    {{IF_3D}}let y0 = row.at.x + i32(o / p.kernel2 / p.kernel1 * p.dilation0);
    {{IF_3D}}inside = inside & (u32(y0) < p.in0);
    {{IF_3D}}pixel += y0 * i32(p.in1 * p.in2);
    return Line(select(0u, row.image + u32(pixel) * p.pixel, inside), inside);
}
