// y[i] = x[i] + bias[channel of i], where a channel takes p.inner neighbouring elements and channels repeat.
// The window's first element is p.rest elements into channel p.phase. Grid: Grid::map over p.count elements of y.

fn value(i: u32) -> {{VALUE}} {
    return load_x(i) + load_bias(((i + p.rest) / p.inner + p.phase) % p.channels);
}
