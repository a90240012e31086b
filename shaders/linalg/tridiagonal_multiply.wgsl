// Products of tridiagonal matrices of p.n rows, given by their diagonals, and matrices `x` of
// p.cols columns. Grid: map over the elements of the products.

{{NUMBERS}}

fn value(t: u32) -> number {
    let row = t / p.cols;
    let i = row % p.n;
    var sum = times(load_middle(row), load_x(t));
    if i > 0u {
        sum += times(load_below(row), load_x(t - p.cols));
    }
    if i + 1u < p.n {
        sum += times(load_above(row), load_x(t + p.cols));
    }
    return sum;
}
