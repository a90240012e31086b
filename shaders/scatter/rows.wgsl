// Grid: one invocation per index and column, or vec4 of columns, which p.inner counts then; the
// index at the head of its row's chain serves the row, by `apply`. Tensors hold the rows from
// p.first_row on, p.rows of them.

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
