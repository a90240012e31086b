// The gradient where no window is larger than its stride: an invocation reads a window's gradient
// and writes a block with the extents of the strides, at whose first corner the window lies;
// elements outside windows become zero. Units: those of `blocks()` positions. Bindings: dy, result.

fn unit(t: u32) {
    let at = place_of(t, blocks());
    let block = block_of(at.x);
    let window = elements_of(at.x);
    var share = vec4<f32>();
    if all(at.x < out_extent()) {
        let extent = window.end - window.first;
        share = read_dy(element_at(at.image, at.channel, at.x,
            out_extent())) / f32(extent.x * extent.y * extent.z);
    }
    for (var x0 = block.first.x; x0 < block.end.x; x0 += 1u) {
        for (var x1 = block.first.y; x1 < block.end.y; x1 += 1u) {
            for (var x2 = block.first.z; x2 < block.end.z; x2 += 1u) {
                let x = vec3<u32>(x0, x1, x2);
                let inside = all(x < window.end);
                write_result(element_at(at.image, at.channel, x, in_extent()), select(vec4<f32>(),
                    share, inside), 4u);
            }
        }
    }
}
