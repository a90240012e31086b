// Numbers the distinct values in the order of their first positions: ranks[position] is the number
// of first positions before it. Grid: one invocation per element. Indices are written as p.words
// words (int32 or int64); sizes start as zeros.

{{ENTRY}} {
    let i = linear_id(workgroup_id, num_workgroups, local_index);
    if i >= p.count {
        return;
    }
    let first = load_firsts(i);
    let rank = load_ranks(first);
    let at = p.off_idx + i * p.words;
    idx[at] = rank;
    if p.words == 2u {
        idx[at + 1u] = 0u;
    }
    if first == i {
        store_order(rank, i);
    }
    if p.sized != 0u {
        atomicAdd(&sizes[p.off_sizes + rank * p.words], 1u);
    }
}
