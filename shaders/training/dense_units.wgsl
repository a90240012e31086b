// One step of whole units of four elements of whole variables, in place.
// Grid: one invocation per unit; p.count units.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let c = scalars();
    let at = t;
{{LOAD}}
    let g_v = read_g(t);
{{STEP}}
{{STORE}}}
