// Fills `p.count` vectors of `dst` with the element `value`.
// Grid: one invocation per vector.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    dst[p.off_dst + t] = {{VALUE}};
}
