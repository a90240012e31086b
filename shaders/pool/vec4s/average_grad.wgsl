// Each element of the input sums its share of the gradients of the windows that contain it.
// Units: the result's. Bindings: dy, result.

// Elements of window `o` along an axis, without padding.
fn width_of(o: u32, stride: u32, kernel: u32, pad: u32, extent: u32) -> u32 {
    let start = o * stride;
    return min(start + kernel, pad + extent) - max(start, pad);
}

fn unit(t: u32) {
    let at = place_of(t, in_extent());
    let windows = windows_of(at.x);
    var sum = vec4<f32>();
    for (var o0 = windows.first.x; o0 < windows.end.x; o0 += 1u) {
        let depth = width_of(o0, p.stride0, p.kernel0, p.pad0, p.input0);
        for (var o1 = windows.first.y; o1 < windows.end.y; o1 += 1u) {
            let area = depth * width_of(o1, p.stride1, p.kernel1, p.pad1, p.input1);
            var i = element_at(at.image, at.channel, vec3<u32>(o0, o1, windows.first.z),
                out_extent());
            for (var o2 = windows.first.z; o2 < windows.end.z; o2 += 1u) {
                let count = f32(area * width_of(o2, p.stride2, p.kernel2, p.pad2, p.input2));
                let four = read_dy(i);
                sum += four / count;
                i += p.channels;
            }
        }
    }
    let i = element_at(at.image, at.channel, at.x, in_extent());
    write_result(i, sum, 4u);
}
