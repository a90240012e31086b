// Order of integers, and of f64, with NaN both above and below everything.
fn greater(a: Accumulator, b: Accumulator) -> Accumulator {
    return select(a, b, b > a || b != b);
}

fn lesser(a: Accumulator, b: Accumulator) -> Accumulator {
    return select(a, b, b < a || b != b);
}
