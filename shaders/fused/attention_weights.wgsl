// Turns the scores of a row, in place, into its weights: scale, mask, softmax. LANES neighbouring
// invocations share a row; all in f32. Grid: LANES invocations for each row. Bindings: scores (rows
// x keys), extra (a mask). Keys and strides count elements, or vec4s of them: `Scores`. Where
// causal rules hide keys altogether, scores beyond the last key of a row's block of p.block rows
// are neither read nor written.

const LANES = {{LANES}}u;

var<workgroup> partials: array<f32, WORKGROUP>;

fn of_lanes(own: f32, lane: u32, local_index: u32, is_sum: bool) -> f32 {
    if LANES == 1u {
        return own;
    }
    partials[local_index] = own;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step = step / 2u) {
        if lane < step {
            let other = partials[local_index + step];
            partials[local_index] = select(max(partials[local_index], other),
                partials[local_index] + other, is_sum);
        }
        workgroupBarrier();
    }
    let all = partials[local_index - lane];
    workgroupBarrier();
    return all;
}

{{ENTRY}} {
    // Lanes past the last row have no keys.
    let row = linear_id(workgroup_id, num_workgroups, local_index) / LANES;
    let lane = local_index % LANES;
    let t = row % p.queries;
    let matrix = row / p.queries;
    let mask_at = matrix / p.heads * p.m_b + matrix % p.heads * p.m_h + t * p.m_t;
    let scores_at = row * p.keys;
    let hides = (p.flags & SKIP) != 0u;
    let all = select(0u, p.keys, row < p.total);
    let keys = select(all, min(all, t / UNIT + 1u), hides);
    let past = select(all, min(all, (t / p.block + 1u) * p.block / UNIT), hides);
    var own = Scores(p.lowest);
    for (var c = lane; c < keys; c += LANES) {
        own = max(own, score_at(scores_at, t, c, mask_at));
    }
    let largest = of_lanes(largest_of(own), lane, local_index, false);
    let none = largest < LOWEST_FINITE;
    let base = select(largest, 0.0, none);
    var sum = Scores();
    for (var c = lane; c < keys; c += LANES) {
        let weight = exp(score_at(scores_at, t, c, mask_at) - base);
        scores[p.off_scores + scores_at + c] = weight;
        sum += weight;
    }
    let total = of_lanes(sum_of(sum), lane, local_index, true);
    for (var c = lane; c < keys; c += LANES) {
        let weight = select(scores[p.off_scores + scores_at + c] / total, Scores(not_a_number()),
            Kept(none));
        let is_zero = Kept((p.flags & ZERO_MASKED) != 0u) & !kept_at(t, c, mask_at);
        scores[p.off_scores + scores_at + c] = select(weight, Scores(), is_zero);
    }
    for (var c = keys + lane; c < past; c += LANES) {
        scores[p.off_scores + scores_at + c] = Scores();
    }
}
