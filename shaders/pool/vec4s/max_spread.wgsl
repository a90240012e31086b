// The gradient where no window is larger than its stride: an invocation writes a block with the
// extents of the strides, at whose first corner the window lies. A window's gradient goes to the
// first element that equals its output; all others become zero. Units: those of `blocks()`
// positions. Bindings: x, y, dy, result.

fn unit(t: u32) {
    let at = place_of(t, blocks());
    let block = block_of(at.x);
    let window = elements_of(at.x);
    var best = vec4<f32>();
    var gradient = vec4<f32>();
    var open = vec4<bool>();
    if all(at.x < out_extent()) {
        let o = element_at(at.image, at.channel, at.x, out_extent());
        best = read_y(o);
        gradient = read_dy(o);
        open = vec4(true);
    }
    for (var x0 = block.first.x; x0 < block.end.x; x0 += 1u) {
        for (var x1 = block.first.y; x1 < block.end.y; x1 += 1u) {
            for (var x2 = block.first.z; x2 < block.end.z; x2 += 1u) {
                let x = vec3<u32>(x0, x1, x2);
                let i = element_at(at.image, at.channel, x, in_extent());
                let taken = open & matches(read_x(i), best) & vec4(all(x < window.end));
                open = open & !taken;
                write_result(i, select(vec4<f32>(), gradient, taken), 4u);
            }
        }
    }
}
