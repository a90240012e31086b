// Elements 4t to 4t + 3 of the parts of the gradient of the filter, (part, k1, k2, channel): the
// sums over `chunk` of the `lines` lines of all output images. Grid: one invocation for each t.
// Bindings: x, dy, result.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if 4u * t >= p.count {
        return;
    }
    let units = p.filters / 4u;
    let channel = t % units;
    let tap = t / units;
    let k2 = tap % p.kernel2;
    let k1 = tap / p.kernel2 % p.kernel1;
    let part = tap / p.kernel2 / p.kernel1;
    let end = min((part + 1u) * p.chunk, p.lines);
    // The outputs whose window has this tap inside the input.
    let shift = k2 * p.dilation2;
    let first = (max(p.pad2, shift) - shift + p.stride2 - 1u) / p.stride2;
    let padded = max(p.input2 + p.pad2, shift) - shift;
    let behind = min((padded + p.stride2 - 1u) / p.stride2, p.output2);
    let step = p.stride2 * units;
    var sum = vec4<f32>();
    for (var line = part * p.chunk; line < end; line += 1u) {
        let y1 = line % p.output1 * p.stride1 + k1 * p.dilation1 - p.pad1;
        if y1 >= p.input1 {
            continue;
        }
        let x_row = (line / p.output1 * p.input1 + y1) * p.input2;
        var x_at = (x_row + first * p.stride2 + shift - p.pad2) * units + channel;
        var dy_at = (line * p.output2 + first) * units + channel;
        for (var x2 = first; x2 < behind; x2 += 1u) {
            sum += read_x(x_at) * read_dy(dy_at);
            x_at += step;
            dy_at += units;
        }
    }
    write_result(t, sum, 4u);
}
