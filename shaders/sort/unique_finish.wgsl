// Numbers the runs in the order of their first positions: ranks[position] is the number of runs
// that appear before it. Grid: one invocation per element. Indices are written as p.words words
// (int32 or int64).

fn store_index(at: u32, n: u32) {
    idx[p.off_idx + at * p.words] = n;
    if p.words == 2u {
        idx[p.off_idx + at * 2u + 1u] = 0u;
    }
}

fn store_size(at: u32, n: u32) {
    sizes[p.off_sizes + at * p.words] = n;
    if p.words == 2u {
        sizes[p.off_sizes + at * 2u + 1u] = 0u;
    }
}

{{ENTRY}} {
    let i = linear_id(workgroup_id, num_workgroups, local_index);
    if i >= p.count {
        return;
    }
    // The last of the runs that start at or before i.
    let run = load_runs(i + 1u) - 1u;
    let first = load_permutation(load_run_at(run));
    let rank = load_ranks(first);
    store_index(load_permutation(i), rank);
    if load_runs(i) == run {
        store_order(rank, first);
        if p.sized != 0u {
            store_size(rank, load_run_at(run + 1u) - load_run_at(run));
        }
    }
}
