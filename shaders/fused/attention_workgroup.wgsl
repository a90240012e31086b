// softmax(query * key^T) * value in one pass over the keys, with tiles of KEYS keys and values in
// workgroup memory. Grid: one workgroup for each tile of ROWS rows, split of the keys and matrix;
// tiles run fastest. PARTS neighbouring invocations share a row: invocation i of them has every
// PARTS-th group of four elements, from the i-th on. Bindings: query, key, value, result (and stats
// where keys are split), extra (a mask). Strides and offsets count elements. The running maximum
// and sum are those of the keys seen so far; earlier sums shrink when the maximum grows. All in
// f32. Rows past the last one repeat it; keys past the last one are zeros whose weight is zero.

const PARTS = {{PARTS}}u;
const ROWS = WORKGROUP / PARTS;
const KEYS = {{KEYS}}u;
const VEC4S = {{VEC4S}}u;

var<workgroup> key_tile: array<vec4<f32>, KEYS * VEC4S>;
var<workgroup> value_tile: array<vec4<f32>, KEYS * VEC4S>;
// What each invocation adds to the products of its row, key by key.
var<workgroup> products: array<f32, KEYS * WORKGROUP>;

{{ENTRY}} {
    // A workgroup past the last one computes that one's rows again and stores the same values.
    let workgroup = min(workgroup_id.y * num_workgroups.x + workgroup_id.x, p.total - 1u);
    let tiles = (p.queries + ROWS - 1u) / ROWS;
    let splits = (p.keys + p.chunk - 1u) / p.chunk;
    let tile = workgroup % tiles;
    let split = workgroup / tiles % splits;
    let matrix = workgroup / tiles / splits;
    let b = matrix / p.heads;
    let h = matrix % p.heads;
    let part = local_index % PARTS;
    let t = tile * ROWS + local_index / PARTS;
    let row = min(t, p.queries - 1u);
    let query_at = b * p.q_b + h * p.q_h + row * p.q_t;
    let keys_at = b * p.k_b + h * p.k_h;
    let values_at = b * p.v_b + h * p.v_h;
    let mask_at = b * p.m_b + h * p.m_h + row * p.m_t;
    let first = split * p.chunk;
    let past = select(p.keys, min(p.keys, (tile + 1u) * ROWS), (p.flags & SKIP) != 0u);
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
        for (var j = 0u; j < KEYS; j += {{STEP_KEYS}}u) {
{{PRODUCTS}}
        }
        workgroupBarrier();
        for (var j = 0u; j < KEYS; j += {{STEP_KEYS}}u) {
            let s = s_first + j;
{{STEP}}
        }
        workgroupBarrier();
    }
    if t < p.queries {
        let at = result_row(b, h, t) * p.width;
{{STORE}}
    }
}
