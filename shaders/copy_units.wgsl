// Copies `p.count` units of `src` to `dst`: whole words or vectors of four.
// Grid: one invocation per unit. Offsets count units.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    dst[p.off_dst + t] = src[p.off_src + t];
}
