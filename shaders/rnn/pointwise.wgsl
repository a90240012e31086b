// Grid: one invocation per cell and batch entry.

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
    let j = t % p.cells;
    let row4 = t / p.cells * 4u * p.cells + j;
    let row2 = t / p.cells * 2u * p.cells + j;
    {{BODY}}
}
