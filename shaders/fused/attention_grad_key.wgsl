// The gradients of attention's key and value, for tiles of their rows, in one pass over the
// queries, POSITIONS of which lie in workgroup memory with the gradients of their results. Grid:
// one workgroup for each tile of ROWS keys and matrix; tiles run fastest. PARTS neighbouring
// invocations share a key: invocation i of them has every PARTS-th group of four elements, from the
// i-th on. Bindings: query, key, value, gradient, rows (see attention_grad_rows.wgsl),
// key_gradient, value_gradient, extra (a mask). Strides and offsets count elements; gradients have
// those of key and value. All in f32. Keys past the last one repeat it; queries past the last one
// contribute nothing. Where the queries take more iterations than loops may have, a dispatch takes
// queries p.low to p.high, and its gradients are partial sums.

fn of_depth(b: u32, h: u32, t: u32, quad: u32) -> vec4<f32> {
    return quad_query(b * p.q_b + h * p.q_h + t * p.q_t, quad);
}

fn of_width(b: u32, h: u32, t: u32, quad: u32) -> vec4<f32> {
    return quad_gradient(result_row(b, h, t) * p.width, quad);
}

// The gradient of the score of row position and key s, and the weight of the key's value.
fn of_query(product: f32, change: f32, position: u32, s: u32, b: u32, h: u32) -> vec2<f32> {
    let t = min(position, p.queries - 1u);
    let at = result_row(b, h, t) * 3u;
    let mask_at = b * p.m_b + h * p.m_h + t * p.m_t;
    let kept = is_kept(t, s, mask_at);
    let weight = exp(score(product, kept, s, mask_at) - load_rows(at)) * load_rows(at + 1u);
    let is_inside = position < p.queries;
    let counts = is_inside & (kept | ((p.flags & PENALTY) != 0u));
    let weighs = is_inside & (kept | ((p.flags & ZERO_MASKED) == 0u));
    return vec2<f32>(select(0.0, weight * (change - load_rows(at + 2u)), counts), select(0.0,
        weight, weighs));
}

{{ENTRY}} {
    // A workgroup past the last one computes the last one's keys again and stores the same values.
    let workgroup = min(workgroup_id.y * num_workgroups.x + workgroup_id.x, p.total - 1u);
    let tiles = (p.keys + ROWS - 1u) / ROWS;
    let tile = workgroup % tiles;
    let matrix = workgroup / tiles;
    let b = matrix / p.heads;
    let h = matrix % p.heads;
    let part = local_index % PARTS;
    let own = tile * ROWS + local_index / PARTS;
    let s = min(own, p.keys - 1u);
    let key_at = b * p.k_b + h * p.k_h + s * p.k_t;
    let value_at = b * p.v_b + h * p.v_h + s * p.v_t;
    // Queries before the tile's first key do not see it.
    let start = select(0u, tile * ROWS / POSITIONS * POSITIONS, (p.flags & SKIP) != 0u);
{{OWN}}
{{SUMS}}
    for (var first = {{FIRST}}; first < {{END}}; first += POSITIONS) {
        load_tiles(b, h, first, p.queries, local_index);
        workgroupBarrier();
        let taken = {{TAKEN}};
        for (var j = 0u; j < taken; j += {{STEP_POSITIONS}}u) {
{{PRODUCTS}}
        }
        workgroupBarrier();
        for (var j = 0u; j < taken; j += {{STEP_POSITIONS}}u) {
{{STEP}}
        }
        workgroupBarrier();
    }
    if own < p.keys {
{{STORE}}
    }
}
