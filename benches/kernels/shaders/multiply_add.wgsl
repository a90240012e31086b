// {{ACCUMULATORS}} independent chains of multiply-adds of {{TYPE}}, `p.count` steps each, to
// measure the adapter's arithmetic. Grid: p.invocations invocations. Each writes one element.
// The factors are parameters, so that nothing is computed ahead.

fn step(acc: {{TYPE}}, factor: {{TYPE}}, summand: {{TYPE}}) -> {{TYPE}} {
    return {{STEP}};
}

{{ENTRY}} {
    let i = linear_id(workgroup_id, num_workgroups, local_index);
    if i >= p.invocations {
        return;
    }
    let factor = {{TYPE}}(p.factor);
    let summand = {{TYPE}}(p.summand);
    let start = f32(i) * 0.0001;
{{START}}    for (var k = 0u; k < p.count; k += 1u) {
{{STEPS}}    }
    dst[p.off_dst + i] = {{SUM}};
}
