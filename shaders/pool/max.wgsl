// The largest element of each window. NaN loses against any number, so that a window gives NaN only
// if it holds nothing else. Grid: one invocation per stored unit of the output. Bindings: x,
// result.

fn value(i: u32) -> Value {
    let at = place_of(i, out_extent());
    let all = elements_of(at.x);
    let window = part_of(all);
    var best = so_far(i, load_x(element_at(at.image, at.channel, all.first, in_extent())));
    for (var x0 = window.first.x; x0 < window.end.x; x0 += 1u) {
        for (var x1 = window.first.y; x1 < window.end.y; x1 += 1u) {
            for (var x2 = window.first.z; x2 < window.end.z; x2 += 1u) {
                let v = load_x(element_at(at.image, at.channel, vec3<u32>(x0, x1, x2),
                    in_extent()));
                if v > best || is_nan_{{VALUE}}(best) {
                    best = v;
                }
            }
        }
    }
    return best;
}
