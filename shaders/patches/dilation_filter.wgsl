// partial[run][position][channel] sums the gradients of the windows, among p.run of them, that
// selected this filter position. Grid: one invocation per element of partial. Bindings: taken (a
// filter position for each window), dy, partial.

fn value(i: u32) -> {{REAL}} {
    let c = i % p.depth;
    let positions = p.kernel_rows * p.kernel_columns;
    let position = (i / p.depth) % positions;
    let first = (i / (p.depth * positions)) * p.run;
    let end = min(first + p.run, p.windows);
    var sum = {{REAL}}();
    for (var window = first; window < end; window += 1u) {
        if load_taken(window * p.depth + c) == position {
            sum += load_dy(window * p.depth + c);
        }
    }
    return sum;
}
