// c[z][m][n] = sum over k of a[z][m][k] * b[z][k][n] by cooperative matrices: subgroups multiply
// the elements that all invocations have loaded into workgroup memory, {{DEPTH}} steps of k at a
// time. Grid: one workgroup per tile, split and matrix, see place.wgsl. Bindings: a, b, c. All
// strides and offsets are in elements. Products are of {{ELEMENT}}, summed in f32, in an order that
// the driver chooses. tile_a is [row][k], tile_b is [column][k], with lines that are longer than
// the tile so that they begin in different banks. If there are two places, the next steps are
// loaded while those in one are multiplied, and go to the other one; the first steps are then those
// that do not fill a tile, with zeros in the rest. Rows and columns beyond the edge repeat the last
// one and are not stored. A subgroup computes one block of {{BLOCK_M}} by {{BLOCK_N}}. Where there
// are more subgroups than blocks, several compute the same block, and store the same values; where
// there are fewer, all go over the operands again for the next blocks. Sums go to the result
// through `staged`, one matrix of each block at a time.

const LINE = {{LINE}};
const PLACE = {{PLACE}};
const BLOCKS = {{BLOCKS}};

var<workgroup> tile_a: array<{{ELEMENT}}, {{BUFFERS}} * PLACE>;
var<workgroup> tile_b: array<{{ELEMENT}}, {{BUFFERS}} * PLACE>;
var<workgroup> staged: array<f32, BLOCKS * M * N>;

// Stores the staged sums of `count` blocks from the block `first` on; m and n are the first row and
// column of block 0's matrix.
fn store_staged(local_index: u32, m: u32, n: u32, c_first: u32, first: u32, count: u32) {
    for (var i = 0u; i < BLOCKS * M * N / 4u; i += WORKGROUP) {
        let quad = i + local_index;
        let block = quad / (M * N / 4u);
        let row = m + block / {{BLOCKS_N}} * {{BLOCK_M}} + quad / (N / 4u) % M;
        let column = n + block % {{BLOCKS_N}} * {{BLOCK_N}} + quad % (N / 4u) * 4u;
        if quad < BLOCKS * M * N / 4u && block >= first && block < first + count && row < p.m {
            let at = quad * 4u;
            let v = Vec4(staged[at], staged[at + 1u], staged[at + 2u], staged[at + 3u]);
            let line = c_first + c_line(row);
            store_quad(line, column, finish(v, line, column));
        }
    }
}

{{HEAD}}
    if local_index == 0u {
        staged[0] = f32({{SUBGROUPS}});
    }
{{SLOTS}}
    // There is at least one subgroup, whatever number the driver reports. It lies in `staged`, as
    // the tiles leave no other memory.
    let count = clamp(u32(workgroupUniformLoad(&staged[0])), 1u, BLOCKS);
    // From here on all steps fill the tiles; the last ones that do.
    let whole = place.k_end - (place.k_end - place.k_first - 1u) / {{DEPTH}} * {{DEPTH}};
    let last = max(place.k_end, {{DEPTH}}) - {{DEPTH}};
    for (var first = 0u; first < BLOCKS; first += count) {
        let block = min(first + subgroup_id % count, BLOCKS - 1u);
        let block_m = block / {{BLOCKS_N}} * {{BLOCK_M}};
        let block_n = block % {{BLOCKS_N}} * {{BLOCK_N}};
        let own = block * M * N;
        for (var i = 0u; i < BLOCKS * M * N; i += WORKGROUP) {
            if i + local_index < BLOCKS * M * N {
                staged[i + local_index] = 0.0;
            }
        }
        workgroupBarrier();
{{SUMS}}
        // The place of the tiles that are multiplied.
        var current = 0u;
{{LOOP}}{{STORES}}
    }
}
