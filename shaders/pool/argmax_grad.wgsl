// Each element of the input sums the gradients of the windows whose argmax names it.
// Grid: one invocation per stored unit of the result. Bindings: argmax (int64), dy, result.

fn value(i: u32) -> Value {
    let at = place_of(i, in_extent());
    let index = i64(i - at.image * p.per_image) + i64(p.base);
    let windows = part_of(windows_of(at.x));
    var sum = so_far(i, Value(0.0));
    for (var o0 = windows.first.x; o0 < windows.end.x; o0 += 1u) {
        for (var o1 = windows.first.y; o1 < windows.end.y; o1 += 1u) {
            for (var o2 = windows.first.z; o2 < windows.end.z; o2 += 1u) {
                let window = element_at(at.image, at.channel, vec3<u32>(o0, o1, o2), out_extent());
                if load_argmax(window) == index {
                    sum += load_dy(window);
                }
            }
        }
    }
    return sum;
}
