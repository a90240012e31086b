// A matrix from another, element by element: y[matrix, i, j] for t = (matrix * p.rows + i) * p.cols
// + j. Element (i, j) of the source is x[matrix * p.x_matrix + i * p.x_row + j * p.x_col]. Grid:
// one invocation for each t below p.count.

alias real = {{REAL}};

fn source(matrix: u32, i: u32, j: u32) -> real {
    return load_x(matrix * p.x_matrix + i * p.x_row + j * p.x_col);
}

fn element(matrix: u32, i: u32, j: u32) -> real {
{{ELEMENT}}
}

fn value(t: u32) -> real {
    return element(t / (p.rows * p.cols), t / p.cols % p.rows, t % p.cols);
}
