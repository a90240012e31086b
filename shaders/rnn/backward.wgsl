// Gradients of some steps of a recurrent layer, from the last step to the first. Steps are counted
// from 1: step 0 ends with the gradients of the state before all steps.
//
// A row of grads has the gradients of the gates' arguments, and behind them the outputs before the
// step. d_state begins with the gradients of the states after all steps.

// The gradients that step `step` gives for the outputs before it.
fn gates_grad(sequence: u32, step: u32, unit: u32) -> Gates {
    if step >= p.total {
        return Gates();
    }
    let at = grads_at(row_of(sequence, step), unit);
    return {{LOAD_GRADS}};
}

fn store_gates_grad(row: u32, unit: u32, value: Gates) {
    let at = grads_at(row, unit);
    {{STORE_GRADS}}
}

{{RETREAT}}

// Ends a phase of a step of a unit: the first phase computes the gradients of the unit's gates from
// the gradients that later steps give for its output. `carry` holds the gradients that reach the
// step before directly: for its output and for its cell.
fn finish(
    sequence: u32,
    at: u32,
    phase: u32,
    unit: u32,
    sum: real,
    carry: ptr<function, vec2<real>>,
) -> Gates {
    if at == 0u {
        (*carry).x += sum;
        return Gates();
    }
    let step = at - 1u;
    let row = row_of(sequence, step);
    {{SECOND_PHASE}}
    var value = Gates();
    var before = real(0.0);
    if step < length(sequence) {
        before = output_before(sequence, step, unit);
        let dy = load_dy(y_at(row, unit)) + sum + (*carry).x;
        value = retreat(sequence, step, unit, row, before, dy, carry);
    }
    store_gates_grad(row, unit, value);
    store_grads(grads_at(row, unit) + {{SLOTS}}u * p.units, before);
    return value;
}

fn product(a: Gates, b: Gates) -> real {
    return {{PRODUCT}};
}

fn load_carry(sequence: u32, unit: u32) -> vec2<real> {
    if sequence >= p.sequences_end || unit >= p.units {
        // This is not vec2<real>(): in HLSL naga would define that zero twice where Gates is the
        // same type.
        return vec2<real>(real(0.0), real(0.0));
    }
    let at = state_of(sequence, unit);
    return {{LOAD_CARRY}};
}

fn store_carry(sequence: u32, unit: u32, carry: vec2<real>) {
    let at = state_of(sequence, unit);
    store_d_state(at, carry.x);
    {{STORE_CARRY}}
}
