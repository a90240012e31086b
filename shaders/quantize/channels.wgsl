// Elements of channel (p.first + t) / p.inner % p.channels, where the tensors are bound from
// element p.first on. Grid: one invocation per element.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let x = load_x(t);
    let channel = (p.first + t) / p.inner % p.channels;
    {{STATEMENTS}}
}
