// c[z][m][n] = sum over k of a[z][m][k] * b[z][k][n], each invocation with a tile of sums in
// registers. Operands take no workgroup memory; sums do where groups of invocations share them.
// Grid: one workgroup per tile, split and matrix, see place.wgsl. Bindings: a, b, c. All strides
// and offsets are in elements. Products and sums are `Scalar`s, in the order of k, or in that of
// each group's own steps. Rows and columns beyond the edge repeat the last one and are not stored.

{{ENTRY}} {
{{TILE_ID}}    let place = place_of(workgroup);
    let lane_m = {{LANE_M}};
    let lane_n = local_index % {{LANES_N}};
    let m0 = place.m + lane_m * {{ROWS}};
{{COLUMNS}}
{{OUTSIDE}}{{A_ROWS}}
{{B_COLUMNS}}
{{SUMS}}
    for (var o = place.k_first / p.inner; o * p.inner < place.k_end; o += 1u) {
        let o_first = o * p.inner;
        let i_first = max(place.k_first, o_first) - o_first;
        let i_end = min(place.k_end - o_first, p.inner);
{{LINES}}
        let b_at = place.b + b_line(o);
        for (var i = {{FIRST}}; i < i_end; i += {{STEPS}}) {
{{STEP}}
        }
    }
{{REDUCE}}
{{STORES}}
}
