// Largest value and sum of exponentials of a row that LANES neighbouring invocations share, which
// take one or four columns at once: `Logits`. The body that includes this defines `fn logit(row:
// u32, c: u32) -> Logits`. p.lowest is minus infinity, which cannot be a constant of WGSL.

alias Value = {{VALUE}};
alias Logits = {{LOGITS}};

const LANES = {{LANES}}u;
// Exponentials that a lane adds before it adds their sum to its total: two levels keep long rows
// accurate.
const BLOCK = 256u;

fn sum_of(v: Logits) -> Value {
    return {{SUM_OF}};
}

fn largest_of(v: Logits) -> Value {
    return {{LARGEST_OF}};
}

var<workgroup> partials: array<Value, WORKGROUP>;

fn max_of_lanes(own: Value, lane: u32, local_index: u32) -> Value {
    if LANES == 1u {
        return own;
    }
    partials[local_index] = own;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step = step / 2u) {
        if lane < step {
            partials[local_index] = max(partials[local_index], partials[local_index + step]);
        }
        workgroupBarrier();
    }
    let all = partials[local_index - lane];
    workgroupBarrier();
    return all;
}

fn sum_of_lanes(own: Value, lane: u32, local_index: u32) -> Value {
    if LANES == 1u {
        return own;
    }
    partials[local_index] = own;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step = step / 2u) {
        if lane < step {
            partials[local_index] += partials[local_index + step];
        }
        workgroupBarrier();
    }
    let all = partials[local_index - lane];
    workgroupBarrier();
    return all;
}

// The largest value of the row in this lane.
fn largest_of_row(row: u32, cols: u32, lane: u32) -> Value {
    var largest = Logits(Value(p.lowest));
    for (var c = lane; c < cols; c += LANES) {
        largest = max(largest, logit(row, c));
    }
    return largest_of(largest);
}

// This lane's share of the sum of exponentials.
fn exponentials_of_row(row: u32, cols: u32, lane: u32, largest: Value) -> Value {
    var total = Logits(Value(0.0));
    for (var begin = lane; begin < cols; begin += BLOCK * LANES) {
        let end = min(cols, begin + BLOCK * LANES);
        var block = Logits(Value(0.0));
        for (var c = begin; c < end; c += LANES) {
            block += {{EXP}}(logit(row, c) - largest);
        }
        total += block;
    }
    return sum_of(total);
}
