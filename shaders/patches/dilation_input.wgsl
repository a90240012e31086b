// Each element of the input sums the gradients of the windows that selected it. Grid: one
// invocation per stored unit of dx. Bindings: taken (a filter position for each window), dy, dx.

fn value(i: u32) -> {{REAL}} {
    let c = i % p.depth;
    let pixel = i / p.depth;
    let line = pixel / p.columns;
    let column = pixel % p.columns + p.pad_columns;
    let row = line % p.rows + p.pad_rows;
    let image = (line / p.rows) * p.out_rows;
    var sum = {{REAL}}();
    for (var h = 0u; h < p.kernel_rows; h += 1u) {
        // The window whose filter row h lies here, if there is one; positions before the start wrap
        // around.
        let up = row - h * p.rate_rows;
        if up > row || up % p.stride_rows != 0u || up / p.stride_rows >= p.out_rows {
            continue;
        }
        for (var w = 0u; w < p.kernel_columns; w += 1u) {
            let left = column - w * p.rate_columns;
            if left <= column && left % p.stride_columns == 0u
                && left / p.stride_columns < p.out_columns {
                let o = ((image + up / p.stride_rows) * p.out_columns + left / p.stride_columns)
                    * p.depth + c;
                if load_taken(o) == h * p.kernel_columns + w {
                    sum += load_dy(o);
                }
            }
        }
    }
    return sum;
}
