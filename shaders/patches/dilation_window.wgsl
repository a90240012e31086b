// The largest of x + weight under each window of [image][row][column][channel], or the first filter
// position that has it. Grid: one invocation per stored unit of result. Bindings: x, weight
// [row][column][channel], result.

fn rounded(v: {{REAL}}) -> {{REAL}} {
    return {{ROUND}};
}

fn value(i: u32) -> {{OUTPUT}} {
    let c = i % p.depth;
    let pixel = i / p.depth;
    let line = pixel / p.out_columns;
    // Positions before the start wrap around, and so are beyond the end.
    let first_column = (pixel % p.out_columns) * p.stride_columns - p.pad_columns;
    let first_row = (line % p.out_rows) * p.stride_rows - p.pad_rows;
    let image = (line / p.out_rows) * p.rows;
    var largest = {{LOWEST}};
    // There is no position yet: nothing exceeds the lowest number.
    var best = 0xffffffffu;
    for (var h = 0u; h < p.kernel_rows; h += 1u) {
        let row = first_row + h * p.rate_rows;
        if row >= p.rows {
            continue;
        }
        for (var w = 0u; w < p.kernel_columns; w += 1u) {
            let column = first_column + w * p.rate_columns;
            if column < p.columns {
                let position = h * p.kernel_columns + w;
                let sum = rounded(load_x(((image + row) * p.columns + column) * p.depth + c)
                    + load_weight(position * p.depth + c));
                if sum > largest {
                    largest = sum;
                    best = position;
                }
            }
        }
    }
    return {{RESULT}};
}
