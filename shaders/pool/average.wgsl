// The mean of each window's elements; padding does not count. Sums are in f32, for float64 in
// float64.
// Grid: one invocation per stored unit of the output. Bindings: x, result.

fn value(i: u32) -> Value {
    let at = place_of(i, out_extent());
    let all = elements_of(at.x);
    let window = part_of(all);
    var sum = so_far(i, Value(0.0));
    for (var x0 = window.first.x; x0 < window.end.x; x0 += 1u) {
        for (var x1 = window.first.y; x1 < window.end.y; x1 += 1u) {
            for (var x2 = window.first.z; x2 < window.end.z; x2 += 1u) {
                sum += load_x(element_at(at.image, at.channel, vec3<u32>(x0, x1, x2), in_extent()));
            }
        }
    }
    if !is_last() {
        return sum;
    }
    let extent = all.end - all.first;
    return sum / Value(extent.x * extent.y * extent.z);
}
