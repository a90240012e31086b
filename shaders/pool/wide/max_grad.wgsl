// Each element of the input sums the gradients of the windows that took it, by the numbers that `taps` wrote.
// Units: the result's. Bindings: taps (u32), dy, result.

fn unit(t: u32) {
    let at = place_of(t, in_extent());
    let windows = windows_of(at.x);
    let x = at.x + pad();
    var sum = vec4<f32>();
    for (var o0 = windows.first.x; o0 < windows.end.x; o0 += 1u) {
        for (var o1 = windows.first.y; o1 < windows.end.y; o1 += 1u) {
            var i = element_at(at.image, at.channel, vec3<u32>(o0, o1, windows.first.z), out_extent());
            let line = ((x.x - o0 * p.stride0) * p.kernel1 + x.y - o1 * p.stride1) * p.kernel2 + x.z;
            for (var o2 = windows.first.z; o2 < windows.end.z; o2 += 1u) {
                let taken = (vec4(taps[p.off_taps + i]) >> vec4(0u, 8u, 16u, 24u)) & vec4(255u);
                sum += select(vec4<f32>(), read_dy(i), taken == vec4(line - o2 * p.stride2));
                i += p.channels;
            }
        }
    }
    write_result(t, sum, 4u);
}
