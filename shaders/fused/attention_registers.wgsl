// softmax(query * key^T) * value in one pass over the keys, with tiles of scores and of sums in
// registers. Grid: one workgroup for each tile of ROWS rows, split of the keys and head of the
// keys; tiles run fastest. p.group heads of the query share a head of the keys, and their rows are
// taken together, head after head. A workgroup takes KEYS keys at a time. An invocation has the
// scores of every ROW_LANES-th row, from row_lane on, with four neighbouring keys, and in the sums
// of the same rows every LANES-th group of four elements, from lane on. Bindings: query, key,
// value, result (and stats where keys are split), extra (a mask). Strides and offsets count
// elements. The running maximum and sum cover the keys seen so far; earlier sums are scaled down
// when the maximum grows. All in f32. Rows past the last one repeat it; keys past the last one are
// zeros and have the weight zero.

const ROW_LANES = {{ROW_LANES}}u;
const LANES = {{LANES}}u;
const ROWS = {{ROWS}}u;
const KEYS = 4u * LANES;
const VEC4S = {{VEC4S}}u;
// Groups of four elements of all keys, and whole values, that lie in workgroup memory at a time.
const KEY_QUADS = {{KEY_QUADS}}u;
const VALUES = {{VALUES}}u;
// One more than the columns, so that neighbouring rows of a tile begin in different banks.
const ROW_STRIDE = ROWS + 1u;
const KEY_STRIDE = KEYS + 1u;

// By groups of four elements, then by rows.
var<workgroup> query_tile: array<vec4<f32>, VEC4S * ROW_STRIDE>;
// Parts of keys, by groups of four elements, then by keys: first the first key of each invocation,
// then the second ones. Or parts of values, by values, then by groups of four elements.
var<workgroup> tile: array<vec4<f32>, {{TILE}}>;
// The weights of four neighbouring keys each, by keys, then by rows.
var<workgroup> weights: array<vec4<f32>, LANES * ROW_STRIDE>;
// A number of each invocation for each of its rows.
var<workgroup> of_lanes: array<f32, ROWS * LANES>;
// Of each row: its position in its head, where its mask and its query start, and its place in the
// result.
var<workgroup> row_of: array<vec4<u32>, ROWS>;

{{ENTRY}} {
{{PLACE}}
    let lane = local_index % LANES;
    let row_lane = local_index / LANES;
    workgroupBarrier();
    for (var slot = local_index; slot < ROWS * VEC4S; slot += WORKGROUP) {
        let row = slot / VEC4S;
        let quad = slot % VEC4S;
        query_tile[quad * ROW_STRIDE + row] = quad_query(row_of[row].z, quad);
    }
{{SUMS}}
    for (var s_first = first; s_first < end; s_first += KEYS) {
{{SCORES}}
        for (var quad_first = 0u; quad_first < VEC4S; quad_first += KEY_QUADS) {
            workgroupBarrier();
            for (var slot = local_index; slot < rounds(KEYS * KEY_QUADS); slot += WORKGROUP) {
                let key = slot / KEY_QUADS;
                let quad = slot % KEY_QUADS;
                let s = s_first + key;
                var key_quad = vec4<f32>();
                if s < end {
                    key_quad = quad_key(keys_at + s * p.k_t, quad_first + quad);
                }
                tile[quad * KEY_STRIDE + key % 4u * LANES + key / 4u] = key_quad;
            }
            workgroupBarrier();
            for (var quad = 0u; quad < rounds(KEY_QUADS); quad += 1u) {
                let at = quad * KEY_STRIDE + lane;
{{COLUMNS}}
                let query_at = (quad_first + quad) * ROW_STRIDE + row_lane;
{{PRODUCTS}}
            }
        }
        let s_own = vec4<u32>(s_first + 4u * lane) + vec4<u32>(0u, 1u, 2u, 3u);
        let inside = s_own < vec4<u32>(end);
        let s = min(s_own, vec4<u32>(p.keys - 1u));
{{LARGEST}}
        workgroupBarrier();
{{WEIGHTS}}
        for (var value_first = 0u; value_first < KEYS; value_first += VALUES) {
            for (var slot = local_index; slot < rounds(VALUES * VEC4S); slot += WORKGROUP) {
                let s = s_first + value_first + slot / VEC4S;
                var value_quad = vec4<f32>();
                if s < end {
                    value_quad = quad_value(values_at + s * p.v_t, slot % VEC4S);
                }
                tile[slot] = value_quad;
            }
            workgroupBarrier();
            for (var four = 0u; four < rounds(VALUES / 4u); four += 1u) {
                let at = four * 4u * VEC4S + lane;
                let weights_at = (value_first / 4u + four) * ROW_STRIDE + row_lane;
{{WEIGHTED}}
            }
            workgroupBarrier();
        }
    }
{{TOTALS}}
    workgroupBarrier();
{{STORE}}
}
