// Writes for each run of equal values where it starts, and marks its first position (the sort is
// stable). runs[i] is the number of runs that start before i. Grid: one invocation per element.

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
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
