// Grid: one invocation per index and column, or per index and vec4 of columns, which p.inner then
// counts. The invocation whose index is at the head of a row's chain serves that row, by `apply`.
// Tensors hold the rows from p.first_row on, p.rows of them.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    let n = quotient(t, p.inner);
    if n >= {{INDICES}} {
        return;
    }
    let row = row_of(n);
    if row == NONE || row - p.first_row >= p.rows {
        return;
    }
    if {{HEAD}} != n {
        return;
    }
    let k = t - n * p.inner;
    apply((row - p.first_row) * p.inner + k, n, k);
}
