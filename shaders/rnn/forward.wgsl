// Steps p.first to p.first + p.steps of a recurrent layer in one direction.
//
// gates holds what the layer's input adds to each gate, and afterwards what the gradient needs of
// them; of an LSTM, with its cell behind them.

{{FINISH}}

// Ends step `step` of a unit: from the sums over the outputs before to the output.
fn finish(sequence: u32, step: u32, unit: u32, sums: Gates) -> real {
    let before = output_before(sequence, step, unit);
    var output = before;
    let row = row_of(sequence, step);
    let y_at = row * p.y_width + p.y_at + unit;
    if step < length(sequence) {
        output = advance(sequence, step, unit, row, sums, before);
        store_y(y_at, output);
    } else {
        store_y(y_at, real(0.0));
    }
    if step + 1u == p.total {
        store_last(state_of(sequence, unit), output);
        {{LAST_CELL}}
    }
    return output;
}
