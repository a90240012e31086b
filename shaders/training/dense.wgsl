// One step of every element of whole variables, in place. Grid: one invocation per stored unit, an
// element or a word of packed elements; the last word may hold fewer than {{LANES}}.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    let first = t * {{LANES}}u;
    if first >= p.count {
        return;
    }
    let c = scalars();
{{STEPS}}}
