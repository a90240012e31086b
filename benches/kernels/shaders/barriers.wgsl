// A chain of `p.steps` multiply-adds for each element of `x`, in place. A dispatch reads the
// values that the dispatch before wrote, if both have the same part of memory. Grid: one invocation
// per element.

{{ENTRY}} {
    let i = linear_id(workgroup_id, num_workgroups, local_index);
    var sum = load_x(i);
    for (var k = 0u; k < p.steps; k += 1u) {
        sum = fma(sum, p.factor, p.summand);
    }
    store_x(i, sum);
}
