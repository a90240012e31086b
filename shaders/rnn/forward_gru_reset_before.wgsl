// Gates are RESET, UPDATE and the candidate; behind them is the previous output as it was reset.

// Ends the first phase of a step: computes all gates but the candidate from the sums over the
// previous outputs. Returns the value that the second phase sums over.
fn reset(sequence: u32, step: u32, unit: u32, row: u32, sums: Gates, before: real) -> real {
    if step >= length(sequence) {
        return real(0.0);
    }
    let at = gates_at(row, unit);
    let bias = bias_of(0u, unit);
    let r = sigmoid_{{T}}(load_gates(at + RESET * p.units) + sums[RESET] + bias[RESET]);
    let u = sigmoid_{{T}}(load_gates(at + UPDATE * p.units) + sums[UPDATE] + bias[UPDATE]);
    store_gates(at + RESET * p.units, r);
    store_gates(at + UPDATE * p.units, u);
    store_gates(at + 3u * p.units, r * before);
    return r * before;
}

fn advance(sequence: u32, step: u32, unit: u32, row: u32, sums: Gates, before: real) -> real {
    let at = gates_at(row, unit);
    let c = tanh_{{T}}(load_gates(at + 2u * p.units) + sums.x + bias_of(1u, unit).x);
    store_gates(at + 2u * p.units, c);
    return c + load_gates(at + UPDATE * p.units) * (before - c);
}

// The value that a phase sums over.
fn summed(sequence: u32, step: u32, phase: u32, unit: u32) -> real {
    if phase == 0u {
        return output_before(sequence, step, unit);
    }
    return load_gates(gates_at(row_of(sequence, step), unit) + 3u * p.units);
}
