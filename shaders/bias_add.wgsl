// y[i] = x[i] + bias[channel of i], where a channel takes p.inner neighbouring elements and
// channels repeat. The window's first element is p.rest elements into channel p.phase. Grid:
// Grid::map over p.count elements of y.

fn value(i: u32) -> {{VALUE}} {
    let channel = quotient(i + p.rest, p.inner) + p.phase;
    return load_x(i) + load_bias(channel - quotient(channel, p.channels) * p.channels);
}
