// c[z][m][n] = sum over k of a[z][m][k] * b[z][k][n], with both operands' tiles in workgroup
// memory, {{DEPTH}} steps of k at a time. There are two places for tiles: the next steps are loaded
// while those of one place are multiplied, and go to the other one. Grid: one workgroup per tile,
// split and matrix, see place.wgsl. Bindings: a, b, c. All strides and offsets are in elements.
// Products and sums are `Scalar`s, in the order of k. tile_a keeps the order in which a is loaded:
// [row][k / 4] with four k in a Vec4, or [k][row / 4] with four rows; tile_b is [k][column / 4].
// Rows and columns beyond the edge repeat the last one and are not stored; k beyond the end is
// zero.

var<workgroup> tile_a: array<Vec4, 2u * {{TILE_M}} * {{DEPTH}} / 4u>;
var<workgroup> tile_b: array<Vec4, 2u * {{TILE_N}} * {{DEPTH}} / 4u>;

{{HEAD}}
    let lane_m = local_index / {{LANES_N}};
    let lane_n = local_index % {{LANES_N}};
    let m0 = place.m + lane_m * {{ROWS}};
{{COLUMNS}}
{{A_ROWS}}
{{SUMS}}
    // The place where the current tiles begin.
    var at_a = 0u;
    var at_b = 0u;
    {
        let k_next = place.k_first;
        let put_a = 0u;
        let put_b = 0u;
{{LOADS}}{{PUTS}}
    }
    workgroupBarrier();
    for (var k = place.k_first; k < place.k_end; k += {{DEPTH}}) {
        // Beyond the end these are zeros, which are never multiplied.
        let k_next = k + {{DEPTH}};
{{LOADS}}
{{STEPS}}
        let put_a = {{TILE_M}} * {{DEPTH}} / 4u - at_a;
        let put_b = {{TILE_N}} * {{DEPTH}} / 4u - at_b;
{{PUTS}}
        workgroupBarrier();
        at_a = put_a;
        at_b = put_b;
    }
{{STORES}}
}
