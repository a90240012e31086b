// Copies `p.count` vectors of four floats: what the adapter's memory allows.
// Grid: one invocation per vector. Offsets are in vectors.

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let i = linear_id(workgroup_id, num_workgroups, local_index);
    if i < p.count {
        dst[p.off_dst + i] = src[p.off_src + i];
    }
}
