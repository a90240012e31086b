// c[z][m][n] = sum over k of a[z][m][k] * b[z][k][n] by cooperative matrices: subgroups multiply
// what all invocations have loaded into workgroup memory, {{DEPTH}} steps of k at a time. Grid: one
// workgroup per tile, split and matrix, see place.wgsl. Bindings: a, b, c. All strides and offsets
// are in elements. Products are of f16, summed in f32, in an order that the driver chooses. tile_a
// is [row][k], tile_b is [k][column], with lines that are longer than the tile so that they begin
// in different banks. Rows and columns beyond the edge repeat the last one and are not stored; k
// beyond the end is zero. A subgroup computes one block of {{BLOCK_M}} by {{BLOCK_N}}. Where there
// are more subgroups than blocks, several compute the same one, and store the same values. Sums go
// through `staged`, a matrix of each block after the other, to where they belong.

const A_LINE = {{A_LINE}};
const B_LINE = {{B_LINE}};
const BLOCKS = {{BLOCKS}};
const EDGE = {{EDGE}};

var<workgroup> tile_a: array<{{HALF}}, {{TILE_M}} * A_LINE>;
var<workgroup> tile_b: array<{{HALF}}, {{DEPTH}} * B_LINE>;
var<workgroup> staged: array<f32, BLOCKS * EDGE * EDGE>;

{{MATRICES}}
fn put_a(row: u32, k: u32, v: Vec4) {
    let at = row * A_LINE + k;
    tile_a[at] = {{HALF}}(v.x);
    tile_a[at + {{A_NEXT}}] = {{HALF}}(v.y);
    tile_a[at + 2u * {{A_NEXT}}] = {{HALF}}(v.z);
    tile_a[at + 3u * {{A_NEXT}}] = {{HALF}}(v.w);
}

fn put_b(k: u32, column: u32, v: Vec4) {
    let at = k * B_LINE + column;
    tile_b[at] = {{HALF}}(v.x);
    tile_b[at + 1u] = {{HALF}}(v.y);
    tile_b[at + 2u] = {{HALF}}(v.z);
    tile_b[at + 3u] = {{HALF}}(v.w);
}

// Stores what is staged, where m and n are the first row and column of the first block's matrix.
fn store_staged(local_index: u32, m: u32, n: u32, c_first: u32) {
    for (var i = 0u; i < BLOCKS * EDGE * EDGE / 4u; i += WORKGROUP) {
        let quad = i + local_index;
        let block = quad / (EDGE * EDGE / 4u);
        let row = m + block / {{BLOCKS_N}} * {{BLOCK_M}} + quad / (EDGE / 4u) % EDGE;
        let column = n + block % {{BLOCKS_N}} * {{BLOCK_N}} + quad % (EDGE / 4u) * 4u;
        if quad < BLOCKS * EDGE * EDGE / 4u && row < p.m {
            let at = quad * 4u;
            let v = Vec4(staged[at], staged[at + 1u], staged[at + 2u], staged[at + 3u]);
            let line = c_first + c_line(row);
            store_quad(line, column, finish(v, line, column));
        }
    }
}

{{ENTRY}} {
    let place = place_of(repeated(workgroup_id, num_workgroups));
    let block = subgroup_id % BLOCKS;
    let block_m = block / {{BLOCKS_N}} * {{BLOCK_M}};
    let block_n = block % {{BLOCKS_N}} * {{BLOCK_N}};
    let own = block * EDGE * EDGE;
{{A_ROWS}}
    for (var i = 0u; i < BLOCKS * EDGE * EDGE; i += WORKGROUP) {
        if i + local_index < BLOCKS * EDGE * EDGE {
            staged[i + local_index] = 0.0;
        }
    }
    workgroupBarrier();
{{SUMS}}
    for (var k = place.k_first; k < place.k_end; k += {{DEPTH}}) {
{{LOADS}}{{PUTS}}
        workgroupBarrier();
        for (var i = 0u; i < {{DEPTH}}; i += EDGE) {
{{STEP}}
        }
        workgroupBarrier();
    }
{{STORES}}
}
