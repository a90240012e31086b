// Applies batch normalization or a bias to rows of channels, four channels at once: p.units counts
// vec4s of channels. An invocation computes rows p.step apart, of p.rows, and reads the values of
// its channels once. Grid: p.count = p.step * p.units invocations.

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
