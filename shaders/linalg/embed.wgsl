// Complex matrices as real ones of twice the rows: element (i, j) becomes the block
// ((re, -im), (im, re)) where p.across is 2, and the column (re, im) where it is 1. Grid: map over
// the real elements, p.cols in a row.

fn value(i: u32) -> {{REAL}} {
    let row = i / p.cols;
    let col = i % p.cols;
    let z = load_x(row / 2u * (p.cols / p.across) + col / p.across);
    let is_lower = (row & 1u) != 0u;
    if p.across == 1u {
        return select(z.x, z.y, is_lower);
    }
    let is_right = (col & 1u) != 0u;
    if is_lower == is_right {
        return z.x;
    }
    // A Hermitian matrix has a real diagonal, whatever is stored there.
    if p.hermitian != 0u && row % p.rows / 2u == col / 2u {
        return {{ZERO}};
    }
    return select(-z.y, z.y, is_lower);
}
