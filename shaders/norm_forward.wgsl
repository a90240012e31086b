// y = (x - mean) * scale / sqrt(variance + epsilon) + offset, each channel with its own four
// values. A channel takes p.inner neighbouring elements; the window's first element is p.rest
// elements into channel p.phase. Grid: Grid::map over p.count of y.

fn value(i: u32) -> f32 {
    let line = quotient(i + p.rest, p.inner) + p.phase;
    let c = line - quotient(line, p.channels) * p.channels;
    let factor = inverseSqrt(load_variance(c) + p.epsilon) * load_scale(c);
    return (load_x(i) - load_mean(c)) * factor + load_offset(c);
}
