// Numbers the runs of equal keys: ranks[i] is the run of key i, unique[r] the key of run r.
// `starts` counts the runs that begin before each place. Grid: one invocation per key.

{{ENTRY}} {
    let i = linear_id(workgroup_id, num_workgroups, local_index);
    if i >= p.count {
        return;
    }
    let rank = load_starts(i + 1u) - 1u;
    store_ranks(i, rank);
    if load_starts(i) <= rank {
        let at = p.off_unique + rank * p.words;
        unique[at] = load_keys(i);
        if p.words == 2u {
            unique[at + 1u] = 0u;
        }
    }
}
