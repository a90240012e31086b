// c[z][m][n] = sum over k of a[z][m][k] * b[z][k][n], with both operands' tiles in workgroup
// memory, {{DEPTH}} steps of k at a time. Grid: one workgroup per tile, split and matrix, see
// place.wgsl. Bindings: a, b, c. All strides and offsets are in elements. Products and sums are
// `Scalar`s, in the order of k. tile_a keeps the order in which a is loaded: [row][k / 4] with four
// k in a Vec4, or [k][row / 4] with four rows; tile_b is [k][column / 4]. Rows and columns beyond
// the edge repeat the last one and are not stored; k beyond the end is zero.

var<workgroup> tile_a: array<Vec4, {{TILE_M}} * {{DEPTH}} / 4u>;
var<workgroup> tile_b: array<Vec4, {{TILE_N}} * {{DEPTH}} / 4u>;

{{HEAD}}
    let lane_m = local_index / {{LANES_N}};
    let lane_n = local_index % {{LANES_N}};
    let m0 = place.m + lane_m * {{ROWS}};
{{COLUMNS}}
{{A_ROWS}}
{{SUMS}}
    for (var k = place.k_first; k < place.k_end; k += {{DEPTH}}) {
{{LOADS}}{{PUTS}}
        workgroupBarrier();
{{STEPS}}
        workgroupBarrier();
    }
{{STORES}}
}
