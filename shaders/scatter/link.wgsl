// Chains the indices that name the same row: heads[row] is the last index that arrived, links[n]
// the index before n. The order within a chain is the order in which invocations arrive, which is
// not fixed. Grid: one invocation per index. heads starts as NONE everywhere.

{{ENTRY}} {
    let n = linear_id(workgroup_id, num_workgroups, local_index);
    if n >= p.count {
        return;
    }
    let row = row_of(n);
    var before = NONE;
    if row != NONE {
        before = atomicExchange(&heads[p.off_heads + row], n);
    }
    links[p.off_links + n] = before;
}
