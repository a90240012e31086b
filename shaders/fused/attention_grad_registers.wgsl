// The gradients of one side of attention, with tiles of the gradients of scores and of sums in
// registers, in one pass over the positions of the other side. Grid: one workgroup for each tile of
// ROWS own rows and matrix; tiles run fastest. A workgroup takes POSITIONS positions at a time. An
// invocation has the products of every ROW_LANES-th row, from row_lane on, with four neighbouring
// positions, and in the sums of the same rows every LANES-th group of four elements, from lane on.
// Bindings: query, key, value, gradient, rows (see attention_grad_rows.wgsl), the gradients, extra
// (a mask). Where the query's program computes the rows, it binds result and saved in front of
// them, and stores them for the gradients of key and value. Strides and offsets count elements;
// gradients have the strides of their operands. All in f32. Rows past the last one repeat it;
// positions past the last one contribute nothing. Where the positions take more iterations than
// loops may have, a dispatch takes positions p.low to p.high, and its gradients are partial sums.

const ROW_LANES = {{ROW_LANES}}u;
const LANES = {{LANES}}u;
const ROWS = {{ROWS}}u;
const POSITIONS = 4u * LANES;
const VEC4S = {{VEC4S}}u;
// Groups of four elements of all positions, and whole positions, that lie in workgroup memory at a
// time.
const QUADS = {{QUADS}}u;
const WHOLE = {{WHOLE}}u;
// One more than the columns, so that neighbouring rows of a tile begin in different banks.
const POSITION_STRIDE = POSITIONS + 1u;
const ROW_STRIDE = ROWS + 1u;

// The own rows, as wide as keys and as wide as values, by groups of four elements, then by rows.
var<workgroup> own_depth: array<vec4<f32>, VEC4S * ROWS>;
var<workgroup> own_width: array<vec4<f32>, VEC4S * ROWS>;
// Parts of positions: by groups of four elements, then by positions, first the first position of
// each invocation, then the second ones; or by positions, then by groups of four elements.
var<workgroup> tile: array<vec4<f32>, {{TILE}}>;
// The gradients of scores of four neighbouring positions each, by positions, then by rows.
var<workgroup> changes: array<vec4<f32>, LANES * ROW_STRIDE>;
{{WEIGHTS}}
// Of each row of the query that is among the own rows, or else among the positions: the number
// that is subtracted from its scores, the factor of their exponentials and the product of the
// result with its gradient, as bits; and where its mask starts.
var<workgroup> numbers: array<vec4<u32>, {{NUMBERS}}>;

// The gradient of the score of row t and key s, and the weight of the key's value.
fn gradient_and_weight(product: f32, change: f32, t: u32, s: u32, of_row: vec4<u32>,
    is_inside: bool) -> vec2<f32> {
    let kept = is_kept(t, s, of_row.w);
    let of_score = score(product, kept, s, of_row.w) - bitcast<f32>(of_row.x);
    let weight = exp(of_score) * bitcast<f32>(of_row.y);
    let counts = is_inside & (kept | ((p.flags & PENALTY) != 0u));
    let weighs = is_inside & (kept | ((p.flags & ZERO_MASKED) == 0u));
    return vec2<f32>(select(0.0, weight * (change - bitcast<f32>(of_row.z)), counts), select(0.0,
        weight, weighs));
}

fn stored_numbers(b: u32, h: u32, t: u32) -> vec4<u32> {
    let at = result_row(b, h, t) * 3u;
    return vec4<u32>(bitcast<u32>(load_rows(at)), bitcast<u32>(load_rows(at + 1u)),
        bitcast<u32>(load_rows(at + 2u)), b * p.m_b + h * p.m_h + t * p.m_t);
}

{{SIDE}}

{{ENTRY}} {
    // A workgroup past the last one computes the last one's rows again and stores the same values.
    let workgroup = min(workgroup_id.y * num_workgroups.x + workgroup_id.x, p.total - 1u);
    let count = own_count();
    let tiles = (count + ROWS - 1u) / ROWS;
    let first_row = workgroup % tiles * ROWS;
    let matrix = workgroup / tiles;
    let b = matrix / p.heads;
    let h = matrix % p.heads;
    let lane = local_index % LANES;
    let row_lane = local_index / LANES;
    let end = end_of_positions(first_row);
    for (var slot = local_index; slot < ROWS * VEC4S; slot += WORKGROUP) {
        let row = min(first_row + slot / VEC4S, count - 1u);
        let quad = slot % VEC4S;
        own_depth[quad * ROWS + slot / VEC4S] = own_depth_quad(b, h, row, quad);
        own_width[quad * ROWS + slot / VEC4S] = own_width_quad(b, h, row, quad);
    }
{{OWN_NUMBERS}}
{{SUMS}}
    for (var first = {{FIRST}}; first < {{END}}; first += POSITIONS) {
{{ZEROS}}
{{POSITION_NUMBERS}}
{{PRODUCTS}}
{{PAIRS}}
{{ADD}}
    }
{{STORE}}
}
