// What batch normalization or a bias does to rows of channels, four channels at once: p.units
// counts vec4s of channels. An invocation computes rows p.step apart, of p.rows, with the values of
// its channels read once. Grid: one invocation for each of p.count = p.step * p.units.

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
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
