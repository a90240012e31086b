// Puts the chains of equal indices in order: firsts[row] is the first index that names the row,
// next[n] the index that follows n, or NONE. Each index goes over its own chain, which has at most
// p.count links. Grid: one invocation per index. firsts starts as NONE everywhere.

{{ENTRY}} {
    let n = linear_id(workgroup_id, num_workgroups, local_index);
    if n >= p.count {
        return;
    }
    let row = row_of(n);
    if row == NONE {
        return;
    }
    var follows = NONE;
    var is_first = true;
    var m = heads[p.off_heads + row];
    for (var step = 0u; step < p.count && m != NONE; step += 1u) {
        if m < n {
            is_first = false;
        }
        if m > n {
            follows = min(follows, m);
        }
        m = links[p.off_links + m];
    }
    next[p.off_next + n] = follows;
    if is_first {
        firsts[p.off_firsts + row] = n;
    }
}
