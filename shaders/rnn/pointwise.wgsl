// Grid: one invocation per cell and batch entry.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let j = t % p.cells;
    let row4 = t / p.cells * 4u * p.cells + j;
    let row2 = t / p.cells * 2u * p.cells + j;
    {{BODY}}
}
