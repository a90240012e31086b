// Three numbers for each row of attention's result: the number that is subtracted from its scores,
// the factor that makes weights of their exponentials, and the product of the row with its
// gradient. All in f32. Grid: one invocation per row. Bindings: result, gradient (rows x width),
// saved (rows x 2: maximum, sum), rows (rows x 3).

const LOWEST_FINITE = -3.40282346e38;

{{ENTRY}} {
    let row = linear_id(workgroup_id, num_workgroups, local_index);
    if row >= p.count {
        return;
    }
    let largest = load_saved(row * 2u);
    var sum = 0.0;
    for (var i = row * p.width; i < (row + 1u) * p.width; i += 1u) {
        sum = fma(load_result(i), load_gradient(i), sum);
    }
    store_rows(row * 3u, select(largest, 0.0, largest < LOWEST_FINITE));
    store_rows(row * 3u + 1u, 1.0 / load_saved(row * 2u + 1u));
    store_rows(row * 3u + 2u, sum);
}
