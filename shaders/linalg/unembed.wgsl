// Complex matrices back from real ones of twice the rows (see embed.wgsl): the first column of each
// block. Grid: map over the complex elements, p.cols in a row and p.rows of these in a matrix.

fn value(i: u32) -> {{COMPLEX}} {
    let row = i / p.cols;
    let col = i % p.cols;
    let stride = p.cols * p.across;
    let at = row * 2u * stride + col * p.across;
    var im = load_x(at + stride);
    // A Hermitian matrix's factor has a real diagonal; NaN says that there is none.
    if p.hermitian != 0u && row % p.rows == col {
        im = {{ZERO}};
    }
    return {{COMPLEX}}(load_x(at), im);
}
