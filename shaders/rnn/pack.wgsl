// Recurrent weights with the gates of a unit side by side, for the steps of a recurrent layer. At k
// * units + j is the weight of output k in the gates of unit j, or, transposed, that of the gates
// of unit k in the gradient of output j; there is one such matrix for each phase of a step. If they
// are not transposed, the biases of each unit follow for each phase.
//
// Grid: an invocation for each of these values. recurrent is [gate, unit, output] or [output, gate,
// unit]; biases is [input or recurrent, gate, unit], or of the input alone.

alias real = {{REAL}};
alias Gates = {{GATES}};

// Gates of a unit.
const COUNT = {{COUNT}}u;

fn weight(gate: u32, unit: u32, output: u32) -> real {
    return load_recurrent({{WEIGHT_AT}});
}

// The bias of the input's part (0) or of the previous outputs' part (1).
fn bias(part: u32, gate: u32, unit: u32) -> real {
    return {{BIAS}};
}

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let row = t / p.units;
    let j = t % p.units;
    if row >= {{PHASES}}u * p.units {
        let phase = row - {{PHASES}}u * p.units;
        packed[p.off_packed + t] = {{BIASES}};
        return;
    }
    let phase = row / p.units;
    let k = row % p.units;
    let unit = select(j, k, p.turned != 0u);
    let output = select(k, j, p.turned != 0u);
    packed[p.off_packed + t] = {{WEIGHTS}};
}
