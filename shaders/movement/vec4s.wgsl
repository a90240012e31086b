// Elements 4t to 4t + 3 of the walk, which neighbour each other in dst and are p.step apart in src.
// The program moves bits without computing. Grid: one invocation per four. Indices of dst count
// vec4s. Indices of src count elements, or vec4s where src is read as vec4s.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let at = index_src(4u * t);
    dst[p.off_dst + t] = {{FOUR}};
}
