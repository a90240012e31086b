// Scores of a row, in place, to its weights: scale, mask, softmax. LANES neighbouring invocations share a row; all in f32.
// Grid: one workgroup of LANES invocations for each row. Bindings: scores (rows x keys), extra (a mask).

const LANES = WORKGROUP;

var<workgroup> partials: array<f32, LANES>;

fn of_lanes(own: f32, lane: u32, is_sum: bool) -> f32 {
    partials[lane] = own;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step = step / 2u) {
        if lane < step {
            let other = partials[lane + step];
            partials[lane] = select(max(partials[lane], other), partials[lane] + other, is_sum);
        }
        workgroupBarrier();
    }
    let all = partials[0];
    workgroupBarrier();
    return all;
}

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    // Workgroups past the last row have no keys.
    let row = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    let keys = select(0u, p.keys, row < p.total);
    let t = row % p.queries;
    let matrix = row / p.queries;
    let mask_at = matrix / p.heads * p.m_b + matrix % p.heads * p.m_h + t * p.m_t;
    var own = p.lowest;
    for (var s = lane; s < keys; s += LANES) {
        let x = score(load_scores(row * keys + s), is_kept(t, s, mask_at), s, mask_at);
        store_scores(row * keys + s, x);
        own = max(own, x);
    }
    let largest = of_lanes(own, lane, false);
    let none = largest < LOWEST_FINITE;
    let base = select(largest, 0.0, none);
    var sum = 0.0;
    for (var s = lane; s < keys; s += LANES) {
        let weight = exp(load_scores(row * keys + s) - base);
        store_scores(row * keys + s, weight);
        sum += weight;
    }
    let total = of_lanes(sum, lane, true);
    for (var s = lane; s < keys; s += LANES) {
        let is_zero = ((p.flags & ZERO_MASKED) != 0u) & !is_kept(t, s, mask_at);
        let weight = select(load_scores(row * keys + s) / total, not_a_number(), none);
        store_scores(row * keys + s, select(weight, 0.0, is_zero));
    }
}
