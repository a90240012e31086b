// Which element each window took: the number, in row-major order of the window with its padding, of the first element that equals the
// output; 255 where none does. A byte for each of four channels.
// Units: the output's. Bindings: x, y, result (u32).

fn unit(t: u32) {
    let at = place_of(t, out_extent());
    let window = elements_of(at.x);
    let start = at.x * stride();
    let best = read_y(t);
    var taken = vec4(255u);
    for (var x0 = window.first.x; x0 < window.end.x; x0 += 1u) {
        for (var x1 = window.first.y; x1 < window.end.y; x1 += 1u) {
            var i = element_at(at.image, at.channel, vec3<u32>(x0, x1, window.first.z), in_extent());
            var tap = ((x0 + p.pad0 - start.x) * p.kernel1 + x1 + p.pad1 - start.y) * p.kernel2 + window.first.z + p.pad2 - start.z;
            for (var x2 = window.first.z; x2 < window.end.z; x2 += 1u) {
                taken = select(taken, vec4(tap), matches(read_x(i), best) & (taken == vec4(255u)));
                tap += 1u;
                i += p.channels;
            }
        }
    }
    result[p.off_result + t] = taken.x | (taken.y << 8u) | (taken.z << 16u) | (taken.w << 24u);
}
