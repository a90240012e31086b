// Moves rows of a whole to or from parts that lie side by side in them; part k ends before column
// ends[k] of those moved here. Grid: one invocation per element. Moves bits, computes nothing.

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
    let row = t / p.columns;
    let column = t - row * p.columns;
    let at = row * p.total + p.begin + column;
    {{MOVES}}
}
