// Gates are RESET, UPDATE and the candidate; the last value is the part of the candidate that comes
// from the previous outputs.
fn advance(sequence: u32, step: u32, unit: u32, row: u32, sums: Gates, before: real) -> real {
    let at = gates_at(row, unit);
    let bias = bias_of(0u, unit);
    let r = sigmoid_{{T}}(load_gates(at + RESET * p.units) + sums[RESET] + bias[RESET]);
    let u = sigmoid_{{T}}(load_gates(at + UPDATE * p.units) + sums[UPDATE] + bias[UPDATE]);
    let m = sums.w + bias.w;
    let c = tanh_{{T}}(load_gates(at + 2u * p.units) + bias.z + r * m);
    store_gates(at + RESET * p.units, r);
    store_gates(at + UPDATE * p.units, u);
    store_gates(at + 2u * p.units, c);
    store_gates(at + 3u * p.units, m);
    return c + u * (before - c);
}
