// The element that was selected from each window, by its number in row-major order of the window
// with its padding: the first element that equals the output; 255 if none does. Units: the
// output's. Bindings: x, y, result.

fn unit(t: u32) {
    let at = place_of(t, out_extent());
    let window = elements_of(at.x);
    let start = at.x * stride();
    let unit_at = element_at(at.image, at.channel, at.x, out_extent());
    let best = read_y(unit_at);
    var taken = vec4(255u);
    for (var x0 = window.first.x; x0 < window.end.x; x0 += 1u) {
        for (var x1 = window.first.y; x1 < window.end.y; x1 += 1u) {
            var i = element_at(at.image, at.channel, vec3<u32>(x0, x1, window.first.z),
                in_extent());
            var tap = ((x0 + p.pad0 - start.x) * p.kernel1 + x1 + p.pad1 - start.y) * p.kernel2
                + window.first.z + p.pad2 - start.z;
            for (var x2 = window.first.z; x2 < window.end.z; x2 += 1u) {
                let four = read_x(i);
                taken = first_of(taken, tap, matches(four, best));
                tap += 1u;
                i += p.channels;
            }
        }
    }
    result[p.off_result + unit_at] = word_of(taken);
}

fn first_of(taken: vec4<u32>, tap: u32, fits: vec4<bool>) -> vec4<u32> {
    return select(taken, vec4(tap), fits & (taken == vec4(255u)));
}

// A byte for each of four channels.
fn word_of(taken: vec4<u32>) -> u32 {
    return taken.x | (taken.y << 8u) | (taken.z << 16u) | (taken.w << 24u);
}
