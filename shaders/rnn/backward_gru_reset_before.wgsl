// The first phase: gradients of the candidate, then of the update gate.
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
    let u = load_saved(at + UPDATE * p.units);
    let c = load_saved(at + 2u * p.units);
    *carry = vec2<real>(dy * u, real(0.0));
    return Gates(
        dy * (real(1.0) - u) * (real(1.0) - c * c),
        dy * (before - c) * u * (real(1.0) - u),
    );
}

// The second phase: computes the gradient of the reset gate from the gradients that all candidates
// give for the previous output, as it was reset. Returns the gradients of the gates reset and
// update.
fn reset_grad(
    sequence: u32,
    step: u32,
    unit: u32,
    row: u32,
    sum: real,
    carry: ptr<function, vec2<real>>,
) -> Gates {
    let at = grads_at(row, unit);
    var r_grad = real(0.0);
    var reset = real(0.0);
    if step < length(sequence) {
        let saved = gates_at(row, unit);
        let r = load_saved(saved + RESET * p.units);
        reset = load_saved(saved + 3u * p.units);
        r_grad = sum * reset * (real(1.0) - r);
        (*carry).x += sum * r;
    }
    store_grads(at + RESET * p.units, r_grad);
    store_grads(at + 3u * p.units, reset);
    var grads = Gates();
    grads[RESET] = r_grad;
    grads[UPDATE] = load_grads(at + UPDATE * p.units);
    return grads;
}

// The values that a phase sums over: first the gradients that step `at` gives for the outputs
// before it, then those of the candidates of the step before.
fn summed(sequence: u32, at: u32, phase: u32, unit: u32) -> Gates {
    if phase == 0u {
        return gates_grad(sequence, at, unit);
    }
    let row = row_of(sequence, at - 1u);
    return Gates(load_grads(grads_at(row, unit) + 2u * p.units), real(0.0));
}
