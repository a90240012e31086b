// c[z][m][n] = sum over k of a[z][m][k] * b[z][k][n], with both operands' tiles in workgroup memory, {{DEPTH}} steps of k at a time.
// There are two places for tiles: the next steps are loaded while those of one place are multiplied, and go to the other one.
// Grid: one workgroup per tile, split and matrix; m runs fastest, so that neighbours share a panel of b.
// Bindings: a, b, c. All strides and offsets are in elements. Products and sums are `Scalar`s, in the order of k.
// tile_a keeps the order in which a is loaded: [row][k / 4] with four k in a Quad, or [k][row / 4] with four rows; tile_b is
// [k][column / 4]. Rows and columns beyond the edge repeat the last one and are not stored; k beyond the end is zero.

var<workgroup> tile_a: array<Quad, 2u * {{TILE_M}} * {{DEPTH}} / 4u>;
var<workgroup> tile_b: array<Quad, 2u * {{TILE_N}} * {{DEPTH}} / 4u>;

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    // A workgroup past the last one computes that one's sums again and stores the same values.
    let workgroup = min(workgroup_id.y * num_workgroups.x + workgroup_id.x, p.total - 1u);
    let tiles_m = (p.m + {{TILE_M}} - 1u) / {{TILE_M}};
    let tiles_n = (p.n + {{TILE_N}} - 1u) / {{TILE_N}};
    let column_tile = workgroup / tiles_m;
    let matrix = column_tile / tiles_n;
    let z = matrix / p.splits;
    let split = matrix % p.splits;
    let k_first = split * p.chunk;
    let k_end = min(k_first + p.chunk, p.depth);

    let lane_m = local_index / {{LANES_N}};
    let lane_n = local_index % {{LANES_N}};
    let m_first = workgroup % tiles_m * {{TILE_M}};
    let m0 = m_first + lane_m * {{ROWS}};
    let n_first = column_tile % tiles_n * {{TILE_N}};
{{COLUMNS}}
    let a_first = a_start(z);
    let b_first = b_start(z);
    let c_first = c_start(z) + split * p.c_split;
{{A_ROWS}}
{{SUMS}}
    // Where the tiles begin that are multiplied.
    var at_a = 0u;
    var at_b = 0u;
    {
        let k_next = k_first;
        let put_a = 0u;
        let put_b = 0u;
{{LOADS}}{{PUTS}}
    }
    workgroupBarrier();
    for (var k = k_first; k < k_end; k += {{DEPTH}}) {
        // Beyond the end these are zeros, which nobody multiplies.
        let k_next = k + {{DEPTH}};
{{LOADS}}
        for (var i = 0u; i < {{DEPTH}} / 4u; i += 1u) {
{{STEP}}
        }
        let put_a = {{TILE_M}} * {{DEPTH}} / 4u - at_a;
        let put_b = {{TILE_N}} * {{DEPTH}} / 4u - at_b;
{{PUTS}}
        workgroupBarrier();
        at_a = put_a;
        at_b = put_b;
    }
{{STORES}}
}
