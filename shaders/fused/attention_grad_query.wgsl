// The gradient of attention's query, for tiles of its rows, in one pass over the keys, POSITIONS of
// which lie in workgroup memory. Grid: one workgroup for each tile of ROWS rows and matrix; tiles
// run fastest. PARTS neighbouring invocations share a row: invocation i of them has every PARTS-th
// group of four elements, from the i-th on. Bindings: query, key, value, gradient, rows (see
// attention_grad_rows.wgsl), query_gradient, extra (a mask). Where this program computes the rows,
// it binds result and saved in front of them, and stores them for the gradients of key and value.
// Strides and offsets count elements; the gradient has the query's. All in f32. Rows past the last
// one repeat it; keys past the last one have no weight. Where the keys take more iterations than
// loops may have, a dispatch takes keys p.low to p.high, and its gradients are partial sums.

fn of_depth(b: u32, h: u32, s: u32, quad: u32) -> vec4<f32> {
    return quad_key(b * p.k_b + h * p.k_h + s * p.k_t, quad);
}

fn of_width(b: u32, h: u32, s: u32, quad: u32) -> vec4<f32> {
    return quad_value(b * p.v_b + h * p.v_h + s * p.v_t, quad);
}

// The gradient of the score of row t and key s. own holds the numbers of the row in rows.
fn of_key(product: f32, change: f32, s: u32, t: u32, mask_at: u32, end: u32,
    own: vec3<f32>) -> vec2<f32> {
    let key = min(s, p.keys - 1u);
    let kept = is_kept(t, key, mask_at);
    let weight = exp(score(product, kept, key, mask_at) - own.x) * own.y;
    let counts = (s < end) & (kept | ((p.flags & PENALTY) != 0u));
    return vec2<f32>(select(0.0, weight * (change - own.z), counts), 0.0);
}

{{ENTRY}} {
    // A workgroup past the last one computes the last one's rows again and stores the same values.
    let workgroup = min(workgroup_id.y * num_workgroups.x + workgroup_id.x, p.total - 1u);
    let tiles = (p.queries + ROWS - 1u) / ROWS;
    let tile = workgroup % tiles;
    let matrix = workgroup / tiles;
    let b = matrix / p.heads;
    let h = matrix % p.heads;
    let part = local_index % PARTS;
    let t = tile * ROWS + local_index / PARTS;
    let row = min(t, p.queries - 1u);
    let query_at = b * p.q_b + h * p.q_h + row * p.q_t;
    let mask_at = b * p.m_b + h * p.m_h + row * p.m_t;
    let own_row = result_row(b, h, row);
    let gradient_at = own_row * p.width;
    let end = select(p.keys, min(p.keys, (tile + 1u) * ROWS), (p.flags & SKIP) != 0u);
{{OWN}}
{{ROW}}
{{SUMS}}
    for (var first = {{FIRST}}; first < {{END}}; first += POSITIONS) {
        load_tiles(b, h, first, end, local_index);
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
    if t < p.queries {
{{STORE}}
    }
}
