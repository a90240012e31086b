// One gate, whose value is the output.
fn advance(sequence: u32, step: u32, unit: u32, row: u32, sums: Gates, before: real) -> real {
    let bias = bias_of(0u, unit);
    let x = load_gates(gates_at(row, unit)) + sums + bias;
    return {{ACTIVATION}};
}
