// The largest element of each window. NaN loses against any number, so that a window gives NaN only
// if it holds nothing else. Units: the output's. Bindings: x, result.

fn unit(t: u32) {
    let at = place_of(t, out_extent());
    let window = elements_of(at.x);
    var best = vec4<f32>();
    var none = true;
    for (var x0 = window.first.x; x0 < window.end.x; x0 += 1u) {
        for (var x1 = window.first.y; x1 < window.end.y; x1 += 1u) {
            var i = element_at(at.image, at.channel, vec3<u32>(x0, x1, window.first.z),
                in_extent());
            for (var x2 = window.first.z; x2 < window.end.z; x2 += 1u) {
                let four = read_x(i);
                best = larger(best, four, none);
                none = false;
                i += p.channels;
            }
        }
    }
    let i = element_at(at.image, at.channel, at.x, out_extent());
    write_result(i, best, 4u);
}

fn larger(best: vec4<f32>, v: vec4<f32>, none: bool) -> vec4<f32> {
    return select(best, v, (v > best) | is_nan(best) | vec4(none));
}
