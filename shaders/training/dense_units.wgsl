// One step of whole units of four elements of whole variables, in place.
// Grid: one invocation per unit; p.count units.

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
    let c = scalars();
    let at = t;
{{LOAD}}
    let g_v = read_g(t);
{{STEP}}
{{STORE}}}
