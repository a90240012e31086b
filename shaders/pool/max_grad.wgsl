// Each element of the input sums the gradients of the windows that selected it; ties go to the
// first element of a window. Grid: one invocation per stored unit of the result. Bindings: x, y,
// dy, result.

fn value(i: u32) -> Value {
    let at = place_of(i, in_extent());
    let v = load_x(i);
    let windows = windows_of(at.x);
    var sum = Value(0.0);
    for (var o0 = windows.first.x; o0 < windows.end.x; o0 += 1u) {
        for (var o1 = windows.first.y; o1 < windows.end.y; o1 += 1u) {
            for (var o2 = windows.first.z; o2 < windows.end.z; o2 += 1u) {
                let o = vec3<u32>(o0, o1, o2);
                let window = element_at(at.image, at.channel, o, out_extent());
                let best = load_y(window);
                if v == best || (is_nan_{{VALUE}}(v) && is_nan_{{VALUE}}(best)) {
                    if first_match(at.image, at.channel, o, best) == i {
                        sum += load_dy(window);
                    }
                }
            }
        }
    }
    return sum;
}
