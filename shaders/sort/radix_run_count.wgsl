// Counts the digits of each run of keys: counts[digit * p.runs + run]. Grid: one invocation for
// each of p.runs runs of p.run keys. An invocation counts in a column of its own, so there are no
// barriers.

var<workgroup> totals: array<u32, MOST_DIGITS * WORKGROUP>;

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) t: u32,
) {
    let run = linear_id(workgroup_id, num_workgroups, t);
    if run >= p.runs {
        return;
    }
    for (var d = 0u; d <= p.mask; d += 1u) {
        totals[d * WORKGROUP + t] = 0u;
    }
    let first = run * p.run;
    let end = min(first + p.run, p.count);
    for (var i = first; i < end; i += 1u) {
        totals[((load_keys(i) >> p.shift) & p.mask) * WORKGROUP + t] += 1u;
    }
    for (var d = 0u; d <= p.mask; d += 1u) {
        store_counts(d * p.runs + run, totals[d * WORKGROUP + t]);
    }
}
