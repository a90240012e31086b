// Elements 4t to 4t + 3 of the output: four channels of a position. Grid: one invocation for each
// t. Bindings: x, weight, result, the epilogue's operands.

fn finish(i: u32, sum: f32) -> {{RESULT_T}} {
{{READS}}
    return {{RESULT}};
}

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    let i = 4u * t;
    if i >= p.count {
        return;
    }
    let units = p.filters / 4u;
    let at = place_of(t, units, p.output1, p.output2);
    // The taps inside the input.
    let shift1 = at.x1 * p.stride1;
    let shift2 = at.x2 * p.stride2;
    let first1 = (max(p.pad1, shift1) - shift1 + p.dilation1 - 1u) / p.dilation1;
    let first2 = (max(p.pad2, shift2) - shift2 + p.dilation2 - 1u) / p.dilation2;
    let end1 = min((max(p.input1 + p.pad1, shift1) - shift1 + p.dilation1 - 1u) / p.dilation1,
        p.kernel1);
    let end2 = min((max(p.input2 + p.pad2, shift2) - shift2 + p.dilation2 - 1u) / p.dilation2,
        p.kernel2);
    let step = p.dilation2 * units;
    var sum = vec4<f32>();
    for (var k1 = first1; k1 < end1; k1 += 1u) {
        let line = (at.image * p.input1 + shift1 + k1 * p.dilation1 - p.pad1) * p.input2;
        var x_at = (line + shift2 + first2 * p.dilation2 - p.pad2) * units + at.channel;
        var weight_at = (k1 * p.kernel2 + first2) * units + at.channel;
        for (var k2 = first2; k2 < end2; k2 += 1u) {
            sum += read_x(x_at) * read_weight(weight_at);
            x_at += step;
            weight_at += units;
        }
    }
    write_result(t, vec4<{{RESULT_T}}>(finish(i, sum.x), finish(i + 1u, sum.y), finish(i + 2u,
        sum.z), finish(i + 3u, sum.w)), 4u);
}
