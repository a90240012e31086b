// Grid: one invocation per index and column, or unit of four columns, which p.inner counts then;
// the first index that names a row does all of the row's steps, by `apply`. The variables hold the
// rows from p.first_row on, p.rows of them.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    let n = quotient(t, p.inner);
    if n >= p.indexed {
        return;
    }
    let row = row_of(n);
    if row == NONE || row - p.first_row >= p.rows {
        return;
    }
    if firsts[p.off_firsts + row] != n {
        return;
    }
    let k = t - n * p.inner;
    apply((row - p.first_row) * p.inner + k, n, k);
}
