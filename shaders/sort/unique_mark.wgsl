// Writes the start of each run of equal values, and marks its first position (the sort is stable).
// runs[i] is the number of runs that start before i. Grid: one invocation per element.

{{ENTRY}} {
    let i = linear_id(workgroup_id, num_workgroups, local_index);
    if i >= p.count {
        return;
    }
    let run = load_runs(i);
    if i + 1u == p.count {
        store_run_at(load_runs(p.count), p.count);
    }
    if load_runs(i + 1u) == run {
        return;
    }
    store_run_at(run, i);
    store_marks(load_permutation(i), 1u);
}
