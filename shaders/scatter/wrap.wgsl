// rows[n] = index[n] modulo p.extent, never negative.
// Grid: one invocation per index.

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let n = linear_id(workgroup_id, num_workgroups, local_index);
    if n >= p.count {
        return;
    }
    let extent = i32(p.extent);
    store_rows(n, (load_index(n) % extent + extent) % extent);
}
