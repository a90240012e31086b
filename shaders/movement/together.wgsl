// Moves rows of a whole to or from parts that lie side by side in them; part k ends before column
// ends[k] of those moved here. Grid: one invocation per element. Moves bits, computes nothing.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let row = t / p.columns;
    let column = t - row * p.columns;
    let at = row * p.total + p.begin + column;
    {{MOVES}}
}
