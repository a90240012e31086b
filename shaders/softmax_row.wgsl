// Largest value and sum of exponentials of a row that LANES neighbouring invocations share. The body that includes this defines
// `fn logit(row: u32, c: u32) -> f32`. p.lowest is minus infinity, which cannot be a constant of WGSL.

const LANES = {{LANES}}u;
// Exponentials that a lane adds before it adds their sum to its total: two levels keep long rows accurate.
const BLOCK = 256u;

var<workgroup> partials: array<f32, WORKGROUP>;

fn max_of_lanes(own: f32, lane: u32, local_index: u32) -> f32 {
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

fn sum_of_lanes(own: f32, lane: u32, local_index: u32) -> f32 {
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

// What this lane sees of the row's largest value.
fn largest_of_row(row: u32, cols: u32, lane: u32) -> f32 {
    var largest = p.lowest;
    for (var c = lane; c < cols; c += LANES) {
        largest = max(largest, logit(row, c));
    }
    return largest;
}

// This lane's share of the sum of exponentials.
fn exponentials_of_row(row: u32, cols: u32, lane: u32, largest: f32) -> f32 {
    var total = 0.0;
    for (var begin = lane; begin < cols; begin += BLOCK * LANES) {
        let end = min(cols, begin + BLOCK * LANES);
        var block = 0.0;
        for (var c = begin; c < end; c += LANES) {
            block += exp(logit(row, c) - largest);
        }
        total += block;
    }
    return total;
}
