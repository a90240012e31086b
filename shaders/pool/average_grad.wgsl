// Each element of the input sums its share of the gradients of the windows that contain it.
// Grid: one invocation per stored unit of the result. Bindings: dy, result.

fn value(i: u32) -> Value {
    let at = place_of(i, in_extent());
    let windows = part_of(windows_of(at.x));
    var sum = so_far(i, Value(0.0));
    for (var o0 = windows.first.x; o0 < windows.end.x; o0 += 1u) {
        for (var o1 = windows.first.y; o1 < windows.end.y; o1 += 1u) {
            for (var o2 = windows.first.z; o2 < windows.end.z; o2 += 1u) {
                let o = vec3<u32>(o0, o1, o2);
                let window = elements_of(o);
                let extent = window.end - window.first;
                let share = load_dy(element_at(at.image, at.channel, o, out_extent()));
                sum += share / Value(extent.x * extent.y * extent.z);
            }
        }
    }
    return sum;
}
