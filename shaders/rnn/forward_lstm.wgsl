fn cell_before(sequence: u32, step: u32, unit: u32) -> real {
    let done = min(step, length(sequence));
    if done == 0u {
        return load_state(state_of(sequence, unit) + p.cell_part);
    }
    return load_gates(gates_at(row_of(sequence, done - 1u), unit) + 4u * p.units);
}

// Gates are input, forget, candidate and output; the cell comes behind them.
fn advance(sequence: u32, step: u32, unit: u32, row: u32, sums: Gates, before: real) -> real {
    let at = gates_at(row, unit);
    let bias = bias_of(0u, unit);
    let i = sigmoid_{{T}}(load_gates(at) + sums.x + bias.x);
    let f = sigmoid_{{T}}(load_gates(at + p.units) + sums.y + bias.y);
    let c = tanh_{{T}}(load_gates(at + 2u * p.units) + sums.z + bias.z);
    let o = sigmoid_{{T}}(load_gates(at + 3u * p.units) + sums.w + bias.w);
    let cell = f * cell_before(sequence, step, unit) + i * c;
    store_gates(at, i);
    store_gates(at + p.units, f);
    store_gates(at + 2u * p.units, c);
    store_gates(at + 3u * p.units, o);
    store_gates(at + 4u * p.units, cell);
    return o * tanh_{{T}}(cell);
}
