// What batch normalization or a bias does to rows of channels, four channels at once: p.units
// counts vec4s of channels. An invocation computes rows p.step apart, of p.rows, with the values of
// its channels read once. Grid: one invocation for each of p.count = p.step * p.units.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let row = quotient(t, p.units);
    let c = t - row * p.units;
    {{CHANNEL}}
    var i = t;
    for (var r = row; r < p.rows; r += p.step) {
        {{WRITE}}
        i += p.count;
    }
}
