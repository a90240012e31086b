// Some steps of a recurrent layer.
//
// gates holds the part of each gate that comes from the layer's input, and afterwards the values
// that the gradient needs; for an LSTM, with its cell behind them.

// The biases of a unit's gates, behind the weights.
fn bias_of(phase: u32, unit: u32) -> Gates {
    return weights[weights_of_direction() + (PHASES * p.units + phase) * p.units + unit];
}

{{FINISH}}

// Ends a phase of step `step` of a unit: the last phase computes the output from the sums over the
// previous outputs.
fn finish(sequence: u32, step: u32, phase: u32, unit: u32, sums: Gates) -> real {
    let before = output_before(sequence, step, unit);
    var output = before;
    let row = row_of(sequence, step);
    {{FIRST_PHASE}}
    if step < length(sequence) {
        output = advance(sequence, step, unit, row, sums, before);
        store_y(y_at(row, unit), output);
    } else {
        store_y(y_at(row, unit), real(0.0));
    }
    if step + 1u == p.total {
        store_last(state_of(sequence, unit), output);
        {{LAST_CELL}}
    }
    return output;
}
