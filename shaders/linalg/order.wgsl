// Sorts p.k values of each matrix by their ranks: y[rank] = x[j], order[rank] = j; ties keep their
// order, so that every rank is taken, with NaNs too. Grid: one invocation for each t = matrix * p.k
// + j below p.count.

{{NUMBERS}}

fn before(a: real, b: real) -> bool {
    return {{BEFORE}};
}

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let base = t / p.k * p.k;
    let own = load_x(t);
    var rank = 0u;
    for (var i = 0u; i < p.k; i += 1u) {
        let other = load_x(base + i);
        let ahead = before(real_of(other), real_of(own));
        let tie = !ahead && !before(real_of(own), real_of(other));
        if ahead || (tie && base + i < t) {
            rank += 1u;
        }
    }
    store_y(base + rank, own);
    store_order(base + rank, i32(t - base));
}
