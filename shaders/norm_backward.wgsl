// dx = a * dy - b * (x - mean) - c with the channel's values a, b, c and mean from coefficients[4,
// p.channels]. A channel takes p.inner neighbouring elements; the window's first element is p.rest
// elements into channel p.phase. Grid: Grid::map over p.count elements of dx.

fn value(i: u32) -> f32 {
    let line = quotient(i + p.rest, p.inner) + p.phase;
    let c = line - quotient(line, p.channels) * p.channels;
    let centered = load_x(i) - load_coefficients(3u * p.channels + c);
    return load_coefficients(c) * load_dy(i) - load_coefficients(p.channels + c) * centered
        - load_coefficients(2u * p.channels + c);
}
