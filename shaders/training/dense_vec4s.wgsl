// One step of whole vec4s of whole variables, in place.
// Grid: one invocation per vec4; p.count vec4s.

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
