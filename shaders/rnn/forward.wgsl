// Steps p.first to p.first + p.steps of a recurrent layer in one direction.
//
// Grid: a workgroup for each ROWS sequences (first) and each UNITS units (then). Where that is
// all units, it takes any number of steps, and a step's outputs stay in workgroup memory for the
// next one. Where it is a part of them, it takes one step.
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

{{ENTRY}} {
    let group = linear_id(workgroup_id, num_workgroups, 0u) / WORKGROUP;
    if group >= p.tiles * p.slices {
        return;
    }
    let first_sequence = p.first_sequence + group % p.tiles * ROWS;
    let unit = group / p.tiles * UNITS + local_index;
    for (var done = 0u; done < p.steps; done += 1u) {
        let step = p.first + done;
        {{DECLARE}}
        for (var chunk = 0u; chunk < p.units; chunk += UNITS) {
            if done == 0u {
                for (var i = local_index; i < ROWS * UNITS; i += UNITS) {
                    let sequence = first_sequence + i / UNITS;
                    let other = chunk + i % UNITS;
                    var value = real(0.0);
                    if sequence < p.sequences_end && other < p.units {
                        value = output_before(sequence, step, other);
                    }
                    shared_values[i] = value;
                }
            }
            workgroupBarrier();
            let others = min(UNITS, p.units - chunk);
            {{SUM}}
            workgroupBarrier();
        }
        if unit < p.units {
            {{END}}
        }
    }
}
