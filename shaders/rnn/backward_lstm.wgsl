fn load_cell(row: u32, unit: u32) -> real {
    return load_saved(gates_at(row, unit) + 4u * p.units);
}

fn retreat(
    sequence: u32,
    step: u32,
    unit: u32,
    row: u32,
    before: real,
    dy: real,
    carry: ptr<function, vec2<real>>,
) -> Gates {
    let at = gates_at(row, unit);
    let i = load_saved(at);
    let f = load_saved(at + p.units);
    let c = load_saved(at + 2u * p.units);
    let o = load_saved(at + 3u * p.units);
    var cell_before: real;
    if step == 0u {
        cell_before = load_state(state_of(sequence, unit) + p.cell_part);
    } else {
        cell_before = load_cell(row_of(sequence, step - 1u), unit);
    }
    let bent = tanh_{{T}}(load_cell(row, unit));
    let d_cell = dy * o * (real(1.0) - bent * bent) + (*carry).y;
    *carry = vec2<real>(real(0.0), d_cell * f);
    return Gates(
        d_cell * c * i * (real(1.0) - i),
        d_cell * cell_before * f * (real(1.0) - f),
        d_cell * i * (real(1.0) - c * c),
        dy * bent * o * (real(1.0) - o),
    );
}
