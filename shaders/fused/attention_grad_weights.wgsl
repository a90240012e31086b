// Turns gradients of weights, in place, into gradients of the products of query and key: softmax,
// mask, scale. LANES neighbouring invocations share a row; all in f32. Grid: one workgroup of LANES
// invocations for each row. Bindings: weights, changes (rows x keys), extra (a mask).

const LANES = WORKGROUP;

var<workgroup> partials: array<f32, LANES>;

{{ENTRY}} {
    let lane = local_index;
    // Workgroups past the last row have no keys.
    let row = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    let keys = select(0u, p.keys, row < p.total);
    let t = row % p.queries;
    let matrix = row / p.queries;
    let mask_at = matrix / p.heads * p.m_b + matrix % p.heads * p.m_h + t * p.m_t;
    var own = 0.0;
    for (var s = lane; s < keys; s += LANES) {
        own = fma(load_weights(row * keys + s), load_changes(row * keys + s), own);
    }
    partials[lane] = own;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step = step / 2u) {
        if lane < step {
            partials[lane] += partials[lane + step];
        }
        workgroupBarrier();
    }
    let mean = partials[0];
    for (var s = lane; s < keys; s += LANES) {
        let at = row * keys + s;
        let counts = is_kept(t, s, mask_at) | ((p.flags & PENALTY) != 0u);
        store_changes(at, select(0.0, load_weights(at) * (load_changes(at) - mean) * p.scale,
            counts));
    }
}
