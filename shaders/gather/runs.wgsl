// gather.wgsl for rows of one element and indices that come in whole vec4s: p.count and
// p.count_indices count vec4s, of dst and of the indices of a batch. Grid: one invocation per four.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let slice = quotient(t, p.count_indices);
    let n = t - slice * p.count_indices;
    let rows = rows_of(quotient(slice, p.outer) * p.count_indices + n);
    let at = rows + slice * p.all_rows;
    let values = vec4(load_src(at.x), load_src(at.y), load_src(at.z), load_src(at.w));
    dst[p.off_dst + t] = select(vec4(0u), values, rows != vec4(NONE));
}
