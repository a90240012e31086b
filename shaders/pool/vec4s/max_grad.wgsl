// Each element of the input sums the gradients of the windows that selected it, by the numbers that
// `taps` wrote. Units: the result's. Bindings: taps, dy, result.

fn unit(t: u32) {
    let at = place_of(t, in_extent());
    let windows = windows_of(at.x);
    let x = at.x + pad();
    var sum = vec4<f32>();
    for (var o0 = windows.first.x; o0 < windows.end.x; o0 += 1u) {
        for (var o1 = windows.first.y; o1 < windows.end.y; o1 += 1u) {
            var i = element_at(at.image, at.channel, vec3<u32>(o0, o1, windows.first.z),
                out_extent());
            let line = ((x.x - o0 * p.stride0) * p.kernel1 + x.y - o1 * p.stride1) * p.kernel2
                + x.z;
            for (var o2 = windows.first.z; o2 < windows.end.z; o2 += 1u) {
                let tap = line - o2 * p.stride2;
                let word = taps[p.off_taps + i];
                let four = read_dy(i);
                sum += select(vec4<f32>(), four, numbers(word) == vec4(tap));
                i += p.channels;
            }
        }
    }
    let i = element_at(at.image, at.channel, at.x, in_extent());
    write_result(i, sum, 4u);
}

// The numbers of four channels.
fn numbers(word: u32) -> vec4<u32> {
    return (vec4(word) >> vec4(0u, 8u, 16u, 24u)) & vec4(255u);
}
