// Solves tridiagonal systems of p.n equations by elimination with partial pivoting of neighbours
// (LAPACK's gtsv): one invocation for each t = matrix * p.cols + column below p.count. p.backward =
// 0 eliminates rows p.first .. p.end, p.backward = 1 substitutes rows p.end - 1 down to p.first;
// long systems take several dispatches, with the state in `u` and `y`.
//
// diagonals[matrix, 0 .. 3, i]: superdiagonal, diagonal, subdiagonal of row i. u[3 * (t * p.n + i)]
// holds diagonal and both superdiagonals of the eliminated row i; y[matrix, i, column] the
// right-hand side, then the solution.

{{NUMBERS}}

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let n = p.n;
    let matrix = t / p.cols;
    let a = matrix * 3u * n;
    let y = matrix * n * p.cols + t % p.cols;
    let u = 3u * t * n;
    if p.backward != 0u {
        for (var s = p.first; s < p.end; s += 1u) {
            let i = p.end - 1u - (s - p.first);
            var value = load_y(y + i * p.cols);
            if i + 1u < n {
                value -= times(load_u(u + 3u * i + 1u), load_y(y + (i + 1u) * p.cols));
            }
            if i + 2u < n {
                value -= times(load_u(u + 3u * i + 2u), load_y(y + (i + 2u) * p.cols));
            }
            store_y(y + i * p.cols, over(value, load_u(u + 3u * i)));
        }
        return;
    }
    for (var i = p.first; i < p.end; i += 1u) {
        // Row i as elimination left it; row 0 is unchanged.
        if i == 0u {
            store_u(u, load_diagonals(a + n));
            store_u(u + 1u, select(number_of(real(0.0)), load_diagonals(a), n > 1u));
            store_u(u + 2u, number_of(real(0.0)));
            store_y(y, load_rhs(y));
        }
        if i + 1u == n {
            break;
        }
        let diagonal = load_u(u + 3u * i);
        let above = load_u(u + 3u * i + 1u);
        let right = load_y(y + i * p.cols);
        let next_below = load_diagonals(a + 2u * n + i + 1u);
        let next_diagonal = load_diagonals(a + n + i + 1u);
        let next_above = select(number_of(real(0.0)), load_diagonals(a + i + 1u), i + 2u < n);
        let next_right = load_rhs(y + (i + 1u) * p.cols);
        let below = u + 3u * (i + 1u);
        if p.pivot != 0u && modulus(next_below) > modulus(diagonal) {
            let factor = over(diagonal, next_below);
            store_u(u + 3u * i, next_below);
            store_u(u + 3u * i + 1u, next_diagonal);
            store_u(u + 3u * i + 2u, next_above);
            store_y(y + i * p.cols, next_right);
            store_u(below, above - times(factor, next_diagonal));
            store_u(below + 1u, -times(factor, next_above));
            store_y(y + (i + 1u) * p.cols, right - times(factor, next_right));
        } else {
            let factor = over(next_below, diagonal);
            store_u(below, next_diagonal - times(factor, above));
            store_u(below + 1u, next_above);
            store_y(y + (i + 1u) * p.cols, next_right - times(factor, right));
        }
        store_u(below + 2u, number_of(real(0.0)));
    }
}
