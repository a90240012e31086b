// The rows of the first or of the last steps of all sequences, and states. p.late tells whether
// that step is the last one in time, as it is at the end of direction 0 and at the start of
// direction 1.
//
// Grid: an invocation for each column of each sequence. rows has p.width elements for each step and
// sequence, of which the columns begin at p.at, and is bound from row p.first_row up to p.rows_end;
// a sequence whose row is elsewhere is left to another dispatch. A sequence without steps has no
// such row.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let sequence = t / p.columns;
    let column = t % p.columns;
    let steps = {{LENGTH}};
    if steps == 0u {
        return;
    }
    let time = select(0u, steps - 1u, p.late != 0u);
    let row = time * p.step_rows + sequence * p.sequence_rows;
    if row < p.first_row || row >= p.rows_end {
        return;
    }
    let at = (row - p.first_row) * p.width + p.at + column;
    let state = p.state_at + sequence * p.state_stride + column;
    {{BODY}}
}
