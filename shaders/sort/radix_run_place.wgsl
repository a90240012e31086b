// Places the pairs of each run where the prefix sums of all runs' digit counts say, in their order,
// so the sort is stable. Grid: one invocation for each of p.runs runs of p.run pairs. An invocation
// keeps the next place of each digit in a column of its own.

var<workgroup> places: array<u32, MOST_DIGITS * WORKGROUP>;

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
        places[d * WORKGROUP + t] = load_starts(d * p.runs + run);
    }
    let first = run * p.run;
    let end = min(first + p.run, p.count);
    for (var i = first; i < end; i += 1u) {
        let key = load_keys(i);
        let column = ((key >> p.shift) & p.mask) * WORKGROUP + t;
        let to = places[column];
        places[column] = to + 1u;
        store_sorted_keys(to, key);
        store_sorted_values(to, {{VALUE}});
    }
}
