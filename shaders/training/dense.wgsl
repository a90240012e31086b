// One step of every element of whole variables, in place. Grid: one invocation per stored unit, an
// element or a word of packed elements; the last word may hold fewer than {{LANES}}.

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    let first = t * {{LANES}}u;
    if first >= p.count {
        return;
    }
    let c = scalars();
{{STEPS}}}
