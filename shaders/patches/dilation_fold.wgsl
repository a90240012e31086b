// y[r][i] = sum of partial[s][i] over the row's run of s, in the order of s.
// Grid: one invocation per stored unit of y. Bindings: partial (splits x columns), y (count).

fn value(i: u32) -> {{REAL}} {
    let row = i / p.columns;
    let column = i % p.columns;
    var sum = {{REAL}}();
    for (var s = row * p.run; s < min((row + 1u) * p.run, p.splits); s += 1u) {
        sum += load_partial(s * p.columns + column);
    }
    return sum;
}
