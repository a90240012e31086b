// Grid: one invocation per index and column; the index at the head of its row's chain folds the
// row. dst holds the rows from p.first_row on, p.rows of them.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    let n = quotient(t, p.inner);
    if n >= p.count {
        return;
    }
    let row = row_of(n);
    if row == NONE || row - p.first_row >= p.rows {
        return;
    }
    if heads[p.off_heads + row] != n {
        return;
    }
    let k = t - n * p.inner;
    let at = (row - p.first_row) * p.inner + k;
    store_dst(at, fold(at, n, k));
}
