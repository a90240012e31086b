// Copies `p.count` units of `src` to `dst`: whole words or vectors of four.
// Grid: one invocation per unit. Offsets count units.

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
    dst[p.off_dst + t] = src[p.off_src + t];
}
