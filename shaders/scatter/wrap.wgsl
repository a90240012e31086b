// rows[n] = index[n] modulo p.extent, never negative.
// Grid: one invocation per index.

{{ENTRY}} {
    let n = linear_id(workgroup_id, num_workgroups, local_index);
    if n >= p.count {
        return;
    }
    let extent = i32(p.extent);
    store_rows(n, (load_index(n) % extent + extent) % extent);
}
