// The mean of each window's elements; padding does not count. Summed in f32, float64 in itself.
// Grid: one invocation per stored unit of the output. Bindings: x, result.

fn value(i: u32) -> Value {
    let at = place_of(i, out_extent());
    let window = elements_of(at.x);
    var sum = Value(0.0);
    for (var x0 = window.first.x; x0 < window.end.x; x0 += 1u) {
        for (var x1 = window.first.y; x1 < window.end.y; x1 += 1u) {
            for (var x2 = window.first.z; x2 < window.end.z; x2 += 1u) {
                sum += load_x(element_at(at.image, at.channel, vec3<u32>(x0, x1, x2), in_extent()));
            }
        }
    }
    let extent = window.end - window.first;
    return sum / Value(extent.x * extent.y * extent.z);
}
