// Element i of the walk, where the mask holds: dst[index_dst(i)] = src[index_src(i)]. Indices count
// elements; the mask's are bytes. No element is written twice. Grid: one invocation per element.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    if load_mask(index_mask(t)) != 0u {
        store_dst(index_dst(t), load_src(index_src(t)));
    }
}
