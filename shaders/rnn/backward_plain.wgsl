fn retreat(
    sequence: u32,
    step: u32,
    unit: u32,
    row: u32,
    before: real,
    dy: real,
    carry: ptr<function, vec2<real>>,
) -> Gates {
    let y = load_y(y_at(row, unit));
    *carry = vec2<real>();
    return {{SLOPE}};
}
