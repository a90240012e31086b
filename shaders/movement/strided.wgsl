// Element i of the walk: dst[index_dst(i)] = src[index_src(i)]. Both indices count elements; no
// element is written twice. Grid: one invocation per element. Moves bits, computes nothing.

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
    store_dst(index_dst(t), load_src(index_src(t)));
}
