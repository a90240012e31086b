// Entry point of a move whose elements are 8 or 16 bytes: element t of the dense `dst` is value(t).
// Grid: one invocation per element.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    store_dst(t, value(t));
}
