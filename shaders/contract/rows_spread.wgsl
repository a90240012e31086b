// Rows are input positions of a convolution, outer steps are kernel positions, inner ones output
// channels: the gradient of the input gathers from the gradient of the output. `in*` and `out*` are
// the extents of the convolution; rows run over `in*`. `pixel` and `image` are the distances of
// neighbouring positions and of images in the output's gradient.

struct Row {
    image: u32,
    // Padded input position.
    at: vec3<i32>,
}

struct Line {
    at: u32,
    inside: bool,
}

fn a_row(m: u32) -> Row {
    let x2 = m % p.in2;
    let rest = m / p.in2;
    var at = vec3<i32>(0, i32(rest % p.in1 + p.pad1), i32(x2 + p.pad2));
    var image = rest / p.in1;
    {{IF_3D}}at.x = i32(image % p.in0 + p.pad0);
    {{IF_3D}}image = image / p.in0;
    return Row(image * p.image, at);
}

fn a_line(row: Row, o: u32) -> Line {
    // The kernel position covers the input position when their distance is a multiple of the
    // stride.
    let d2 = row.at.z - i32(o % p.kernel2 * p.dilation2);
    let d1 = row.at.y - i32(o / p.kernel2 {{AXIS1}} * p.dilation1);
    let s2 = i32(p.stride2);
    let s1 = i32(p.stride1);
    let y2 = d2 / s2;
    let y1 = d1 / s1;
    // No branches, and so no `&&`, which is a branch: for eight rows they take SwiftShader's
    // compiler 20 GB.
    var inside = (d2 >= 0) & (d1 >= 0) & (y2 * s2 == d2) & (y1 * s1 == d1) & (u32(y2) < p.out2)
        & (u32(y1) < p.out1);
    var pixel = y1 * i32(p.out2) + y2;
    {{IF_3D}}let d0 = row.at.x - i32(o / p.kernel2 / p.kernel1 * p.dilation0);
    {{IF_3D}}let s0 = i32(p.stride0);
    {{IF_3D}}let y0 = d0 / s0;
    {{IF_3D}}inside = inside & (d0 >= 0) & (y0 * s0 == d0) & (u32(y0) < p.out0);
    {{IF_3D}}pixel += y0 * i32(p.out1 * p.out2);
    return Line(select(0u, row.image + u32(pixel) * p.pixel, inside), inside);
}
