// Elements 4t to 4t + 3 of the gradient of the input: four channels of a position, gathered from
// the windows that contain it. There are no dilations, so the windows are a range. Grid: one
// invocation for each t. Bindings: weight, dy, result.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if 4u * t >= p.count {
        return;
    }
    let units = p.channels / 4u;
    let at = place_of(t, units, p.input1, p.input2);
    let last1 = at.x1 + p.pad1;
    let last2 = at.x2 + p.pad2;
    let end1 = min(last1 / p.stride1 + 1u, p.output1);
    let end2 = min(last2 / p.stride2 + 1u, p.output2);
    let first1 = (max(last1 + p.stride1, p.kernel1) - p.kernel1) / p.stride1;
    let first2 = (max(last2 + p.stride2, p.kernel2) - p.kernel2) / p.stride2;
    var sum = vec4<f32>();
    for (var x1 = first1; x1 < end1; x1 += 1u) {
        let line = (at.image * p.output1 + x1) * p.output2;
        let taps = (last1 - x1 * p.stride1) * p.kernel2;
        for (var x2 = first2; x2 < end2; x2 += 1u) {
            let tap = taps + last2 - x2 * p.stride2;
            sum += read_dy((line + x2) * units + at.channel) * read_weight(tap * units
                + at.channel);
        }
    }
    write_result(t, sum, 4u);
}
