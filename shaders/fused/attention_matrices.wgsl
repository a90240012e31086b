// softmax(query * key^T) * value in one pass over the keys, with both products by cooperative
// matrices. Grid: one workgroup for each tile of ROWS rows, split of the keys and head of the keys;
// tiles run fastest. p.group heads of the query share a head of the keys, and their rows are taken
// together, head after head. A workgroup takes KEYS keys at a time. Subgroups multiply blocks of
// BLOCK rows, or parts of them by columns. Their sums go through `staged` to the invocations: LANES
// neighbouring ones have a row's scores, weights and sums, each every LANES-th group of four. Where
// there are more subgroups than blocks, several compute the same block, and store the same values;
// where there are fewer, all take several. Bindings: query, key, value, result (and stats where
// keys are split), extra (a mask). Strides and offsets count elements. The running maximum and sum
// cover the keys seen so far; earlier sums are scaled down when the maximum grows. Products are of
// {{ELEMENT}}, summed in f32; so a weight, at most 1, is rounded to {{ELEMENT}}. All else is in
// f32. Rows past the last one repeat it; keys past the last one are zeros and have the weight zero.

const ROWS = {{ROWS}}u;
const LANES = {{LANES}}u;
const KEYS = {{KEYS}}u;
// A subgroup's block of products.
const BLOCK = {{BLOCK}}u;
const COLUMNS = {{COLUMNS}}u;
const BLOCKS = ROWS / BLOCK * COLUMNS;
// Elements of a row of query and key, and of a value, filled up by zeros.
const DEPTH = {{DEPTH}}u;
const WIDTH = {{WIDTH}}u;
// Columns of the sums that go through `staged` at a time.
const SLAB = {{SLAB}}u;
// Lines are longer than their elements, so that neighbours begin in different banks.
const DEPTH_LINE = DEPTH + {{PADDING}}u;
const KEY_LINE = KEYS + {{PADDING}}u;
const STAGED_LINE = max(KEYS, SLAB) + 4u;

// By rows.
var<workgroup> query_tile: array<{{ELEMENT}}, ROWS * DEPTH_LINE>;
// Keys; or values, by elements and then by keys.
var<workgroup> tile: array<{{ELEMENT}}, max(KEYS * DEPTH_LINE, WIDTH * KEY_LINE)>;
// The weights, by rows.
var<workgroup> weights: array<{{ELEMENT}}, ROWS * KEY_LINE>;
// Products on their way, by rows.
var<workgroup> staged: array<f32, ROWS * STAGED_LINE>;
// Zeros, with which sums begin.
var<workgroup> no_sums: array<f32, M * N>;
// A number of each invocation.
var<workgroup> of_lanes: array<f32, WORKGROUP>;
// Of each row: its position in its head, where its mask and its query start, and its place in the
// result.
var<workgroup> row_of: array<vec4<u32>, ROWS>;

fn staged_quad(at: u32) -> vec4<f32> {
    return vec4<f32>(staged[at], staged[at + 1u], staged[at + 2u], staged[at + 3u]);
}

fn put_weights(at: u32, w: vec4<f32>) {
    weights[at] = {{ELEMENT}}(w.x);
    weights[at + 1u] = {{ELEMENT}}(w.y);
    weights[at + 2u] = {{ELEMENT}}(w.z);
    weights[at + 3u] = {{ELEMENT}}(w.w);
}

fn put_tile(at: u32, v: vec4<{{ELEMENT}}>) {
    tile[at] = v.x;
    tile[at + 1u] = v.y;
    tile[at + 2u] = v.z;
    tile[at + 3u] = v.w;
}

// Group c of the value of key s, or zeros past the last key.
fn value_or_zeros(values_at: u32, s: u32, c: u32, end: u32) -> vec4<{{ELEMENT}}> {
    let v = quad_value(values_at + min(s, end - 1u) * p.v_t, c);
    return select(vec4<{{ELEMENT}}>(), v, s < end);
}

{{ENTRY}} {
{{PLACE}}
    let row = local_index / LANES;
    let lane = local_index % LANES;
    if local_index == 0u {
        of_lanes[0] = f32({{SUBGROUPS}});
    }
    for (var i = local_index; i < M * N; i += WORKGROUP) {
        no_sums[i] = 0.0;
    }
    workgroupBarrier();
    // There is at least one subgroup, whatever number the driver reports.
    let count = clamp(u32(workgroupUniformLoad(&of_lanes[0])), 1u, BLOCKS);
    for (var slot = local_index; slot < rounds(ROWS * DEPTH / 4u); slot += WORKGROUP) {
        let v = quad_query(row_of[slot / (DEPTH / 4u)].z, slot % (DEPTH / 4u));
        let at = slot / (DEPTH / 4u) * DEPTH_LINE + slot % (DEPTH / 4u) * 4u;
        query_tile[at] = v.x;
        query_tile[at + 1u] = v.y;
        query_tile[at + 2u] = v.z;
        query_tile[at + 3u] = v.w;
    }
    var largest = p.lowest;
    var total = 0.0;
{{SUMS}}
    for (var s_first = first; s_first < end; s_first += KEYS) {
        // The products with the values of the step before are done.
        workgroupBarrier();
        for (var slot = local_index; slot < rounds(KEYS * DEPTH / 4u); slot += WORKGROUP) {
            let s = s_first + slot / (DEPTH / 4u);
            let quad = slot % (DEPTH / 4u);
            let v = quad_key(keys_at + min(s, end - 1u) * p.k_t, quad);
            put_tile(slot / (DEPTH / 4u) * DEPTH_LINE + quad * 4u,
                select(vec4<{{ELEMENT}}>(), v, s < end));
        }
        workgroupBarrier();
{{SCORES}}
        workgroupBarrier();
        // Four values of an invocation change places with their four elements.
        for (var slot = local_index; slot < rounds(KEYS * WIDTH / 16u); slot += WORKGROUP) {
            let four = slot / (WIDTH / 4u) * 4u;
            let quad = slot % (WIDTH / 4u);
            let s = s_first + four;
            let v0 = value_or_zeros(values_at, s, quad, end);
            let v1 = value_or_zeros(values_at, s + 1u, quad, end);
            let v2 = value_or_zeros(values_at, s + 2u, quad, end);
            let v3 = value_or_zeros(values_at, s + 3u, quad, end);
            let at = quad * 4u * KEY_LINE + four;
            put_tile(at, vec4<{{ELEMENT}}>(v0.x, v1.x, v2.x, v3.x));
            put_tile(at + KEY_LINE, vec4<{{ELEMENT}}>(v0.y, v1.y, v2.y, v3.y));
            put_tile(at + 2u * KEY_LINE, vec4<{{ELEMENT}}>(v0.z, v1.z, v2.z, v3.z));
            put_tile(at + 3u * KEY_LINE, vec4<{{ELEMENT}}>(v0.w, v1.w, v2.w, v3.w));
        }
{{LARGEST}}
        workgroupBarrier();
{{WEIGHTS}}
        workgroupBarrier();
{{SLABS}}
    }
    // Numbers of the last step are still read.
    workgroupBarrier();
    of_lanes[local_index] = total;
    workgroupBarrier();
{{STORE}}
}
