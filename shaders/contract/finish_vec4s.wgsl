// c[i] = finish(sum over s of partial[s][i]), in the order of s, four neighbours at a time. Grid:
// one invocation for each four. Bindings: partial (split_k x count), c (count), the epilogue's
// operands.

{{ENTRY}} {
    let i = linear_id(workgroup_id, num_workgroups, local_index) * 4u;
    if i >= p.count {
        return;
    }
    var sum = load4_partial(i);
    for (var s = 1u; s < p.split_k; s += 1u) {
        sum += load4_partial(s * p.count + i);
    }
{{STORE}}
}
