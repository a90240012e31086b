// Element i of the walk: dst[index_dst(i)] = src[index_src(i)]. Both indices count elements; no
// element is written twice. Grid: one invocation per element. The program moves bits without
// computing.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    store_dst(index_dst(t), load_src(index_src(t)));
}
