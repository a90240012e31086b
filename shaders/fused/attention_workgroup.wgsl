// softmax(query * key^T) * value in one pass over the keys, with tiles of KEYS keys and values in
// workgroup memory. Grid: one workgroup for each tile of ROWS rows, split of the keys and head of
// the keys; tiles run fastest. p.group heads of the query share a head of the keys, and their rows
// are taken together, head after head. PARTS neighbouring invocations share a row: invocation i of
// them has every PARTS-th group of four elements, from the i-th on. Bindings: query, key, value,
// result (and stats where keys are split), extra (a mask). Strides and offsets count elements. The
// running maximum and sum cover the keys seen so far; earlier sums are scaled down when the
// maximum grows. All in f32. Rows past the last one repeat it; keys past the last one are zeros
// and have the weight zero.

const PARTS = {{PARTS}}u;
const ROWS = WORKGROUP / PARTS;
const KEYS = {{KEYS}}u;
const VEC4S = {{VEC4S}}u;

var<workgroup> key_tile: array<vec4<f32>, KEYS * VEC4S>;
var<workgroup> value_tile: array<vec4<f32>, KEYS * VEC4S>;
// The part of each invocation in the products of its row, key by key.
var<workgroup> products: array<f32, KEYS * WORKGROUP>;

{{ENTRY}} {
    // A workgroup past the last one computes the last one's rows again and stores the same values.
    let workgroup = min(workgroup_id.y * num_workgroups.x + workgroup_id.x, p.total - 1u);
    let rows = p.queries * p.group;
    let tiles = (rows + ROWS - 1u) / ROWS;
    let splits = (p.keys + p.chunk - 1u) / p.chunk;
    let tile = workgroup % tiles;
    let split = workgroup / tiles % splits;
    let matrix = workgroup / tiles / splits;
    let key_heads = p.heads / p.group;
    let b = matrix / key_heads;
    let key_head = matrix % key_heads;
    let part = local_index % PARTS;
    let own = tile * ROWS + local_index / PARTS;
    let inside = min(own, rows - 1u);
    let h = key_head * p.group + inside / p.queries;
    let row = inside % p.queries;
    let query_at = b * p.q_b + h * p.q_h + row * p.q_t;
    let keys_at = b * p.k_b + key_head * p.k_h;
    let values_at = b * p.v_b + key_head * p.v_h;
    let mask_at = b * p.m_b + h * p.m_h + row * p.m_t;
    let first = split * p.chunk;
    // The last row of the tile sees the most keys, unless the tile reaches into another head.
    let last = min(tile * ROWS + ROWS, rows) - 1u;
    let is_one_head = last / p.queries == tile * ROWS / p.queries;
    let seen = select(p.queries, last % p.queries + 1u, is_one_head);
    let past = select(p.keys, min(p.keys, seen), (p.flags & SKIP) != 0u);
    let end = max(first, min(first + p.chunk, past));
{{QUERY}}
{{SUMS}}
    var largest = p.lowest;
    var total = 0.0;
    for (var s_first = first; s_first < end; s_first += KEYS) {
        for (var slot = local_index; slot < KEYS * VEC4S; slot += WORKGROUP) {
            let s = s_first + slot / VEC4S;
            var key_quad = vec4<f32>();
            var value_quad = vec4<f32>();
            if s < end {
                key_quad = quad_key(keys_at + s * p.k_t, slot % VEC4S);
                value_quad = quad_value(values_at + s * p.v_t, slot % VEC4S);
            }
            key_tile[slot] = key_quad;
            value_tile[slot] = value_quad;
        }
        workgroupBarrier();
        let taken = {{TAKEN}};
        for (var j = 0u; j < taken; j += {{STEP_KEYS}}u) {
{{PRODUCTS}}
        }
        workgroupBarrier();
        for (var j = 0u; j < taken; j += {{STEP_KEYS}}u) {
            let s = s_first + j;
{{STEP}}
        }
        workgroupBarrier();
    }
    if own < rows {
        let at = result_row(b, h, row) * p.width;
{{STORE}}
    }
}
