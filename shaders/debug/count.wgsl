// Counts values by kind: 0 minus infinity, 1 infinity, 2 NaN, 3 negative, 4 zero, 5 positive. A
// workgroup first counts its own values. Grid: one invocation per element.

var<workgroup> found: array<atomic<u32>, 6>;

fn kind(x: {{VALUE}}) -> u32 {
    {{SPECIAL}}let zero = {{VALUE}}(0);
    if x == zero {
        return 4u;
    }
    return select(5u, 3u, x < zero);
}

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if local_index < 6u {
        atomicStore(&found[local_index], 0u);
    }
    workgroupBarrier();
    if t < p.count {
        atomicAdd(&found[kind(load_x(t))], 1u);
    }
    workgroupBarrier();
    if local_index < 6u {
        atomicAdd(&counters[p.off_counters + local_index], atomicLoad(&found[local_index]));
    }
}
