// Element i of the box src goes into dst. Grid: one invocation for each of p.count elements of src.

{{ENTRY}} {
    let i = linear_id(workgroup_id, num_workgroups, local_index);
    if i < p.count {
        store_dst(in_whole(i), load_src(i));
    }
}
