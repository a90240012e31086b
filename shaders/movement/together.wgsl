// Moves rows of a whole to or from parts that lie side by side in them; part k ends before column
// ends[k] of the moved columns. Grid: one invocation per element. The program moves bits without
// computing.

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
