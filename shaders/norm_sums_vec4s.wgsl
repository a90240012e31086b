// Two sums for each channel and segment over x[p.images, channels], four channels at once: p.lines
// counts vec4s of channels. For the terms of the sums, and the segments, see norm_sums.wgsl. Grid:
// one invocation for each of p.count (segment, unit) pairs.

// Elements added before they are added to the total: two levels keep the sums accurate.
const BLOCK = 64u;

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let s = quotient(t, p.lines);
    let c = t - s * p.lines;
    let center = {{CENTER}};
    let step = p.segments * p.lines;
    var e = t;
    var first = vec4<f32>();
    var second = vec4<f32>();
    for (var begin = s; begin < p.images; begin += BLOCK * p.segments) {
        let end = min(p.images, begin + BLOCK * p.segments);
        var block_first = vec4<f32>();
        var block_second = vec4<f32>();
        for (var r = begin; r < end; r += p.segments) {
            let d = read_x(e) - center;
            {{TERMS}}
            e += step;
        }
        first += block_first;
        second += block_second;
    }
    let at = (p.first_segment + s) * p.lines + c;
    write_sums(at, first, 4u);
    write_sums(p.all_segments * p.lines + at, second, 4u);
}
