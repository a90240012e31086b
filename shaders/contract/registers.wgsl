// c[z][m][n] = sum over k of a[z][m][k] * b[z][k][n], each invocation with a tile of sums in registers. Operands take no workgroup
// memory; sums do where groups of invocations share them.
// Grid: one workgroup per tile, split and matrix; m runs fastest, so that neighbours share a panel of b.
// Bindings: a, b, c. All strides and offsets are in elements. Products and sums are `Scalar`s, in the order of k,
// or in that of each group's own steps.
// Rows and columns beyond the edge repeat the last one and are not stored.

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
{{BUILTINS}}) {
{{TILE_ID}}    let tiles_m = (p.m + {{TILE_M}} - 1u) / {{TILE_M}};
    let tiles_n = (p.n + {{TILE_N}} - 1u) / {{TILE_N}};
    let column_tile = workgroup / tiles_m;
    let matrix = column_tile / tiles_n;
    let z = matrix / p.splits;
    let split = matrix % p.splits;
    let k_first = split * p.chunk;
    let k_end = min(k_first + p.chunk, p.depth);

    let lane_m = {{LANE_M}};
    let lane_n = local_index % {{LANES_N}};
    let m0 = workgroup % tiles_m * {{TILE_M}} + lane_m * {{ROWS}};
    let n_first = column_tile % tiles_n * {{TILE_N}};
{{COLUMNS}}
{{OUTSIDE}}    let a_first = a_start(z);
    let b_first = b_start(z);
    let c_first = c_start(z) + split * p.c_split;
{{A_ROWS}}
{{B_COLUMNS}}
{{SUMS}}
    for (var o = k_first / p.inner; o * p.inner < k_end; o += 1u) {
        let o_first = o * p.inner;
        let i_first = max(k_first, o_first) - o_first;
        let i_end = min(k_end - o_first, p.inner);
{{LINES}}
        let b_at = b_first + b_line(o);
        for (var i = {{FIRST}}; i < i_end; i += {{STEPS}}) {
{{STEP}}
        }
    }
{{REDUCE}}
{{STORES}}
}
