// A matrix from another, element by element: y[matrix, i, j] for t = (matrix * p.rows + i) * p.cols
// + j. Element (i, j) of the source is x[matrix * p.x_matrix + i * p.x_row + j * p.x_col]. Grid:
// one invocation for each t below p.count.

{{NUMBERS}}

fn source(matrix: u32, i: u32, j: u32) -> number {
    return load_x(matrix * p.x_matrix + i * p.x_row + j * p.x_col);
}

// An element of a lower triangle with a real diagonal.
fn lower(z: number, i: u32, j: u32) -> number {
    return select(select(z, number_of(real(0.0)), j > i), number_of(real_of(z)), i == j);
}

fn element(matrix: u32, i: u32, j: u32) -> number {
{{ELEMENT}}
}

fn value(t: u32) -> number {
    return element(t / (p.rows * p.cols), t / p.cols % p.rows, t % p.cols);
}
