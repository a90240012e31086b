// Columns p.first .. p.end of Cholesky decompositions, in place in the lower triangles, of p.batch square matrices of p.n rows.
// Grid: one workgroup for each matrix; an invocation owns every WORKGROUP-th row.
//
// state[matrix] becomes 1 at the first pivot that is not positive; from there on the matrix holds nothing of use.
//
// Where fours of a row are read and written at once (ACCESS, ELIMINATE), what lies above the diagonal changes too.

{{ACCESS}}
// The panel's part of a column, which all rows use.
var<workgroup> column: array<{{REAL}}, 64>;

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let matrix = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    if matrix >= p.batch {
        return;
    }
    let n = p.n;
    let base = matrix * n * n;
    if p.first == 0u && local == 0u {
        store_state(matrix, 0);
    }
    for (var k = p.first; k < p.end; k += 1u) {
        let pivot = load_a(base + k * n + k);
        let root = sqrt(pivot);
        // Everyone has read the pivot before its owner replaces it.
        workgroupBarrier();
        if local == 0u {
            if pivot <= 0.0 {
                store_state(matrix, 1);
            }
            store_a(base + k * n + k, root);
        }
        for (var i = k + 1u + local; i < n; i += WORKGROUP) {
            let factor = load_a(base + i * n + k) / root;
            store_a(base + i * n + k, factor);
            if i < p.end {
                column[i - p.first] = factor;
            }
        }
        storageBarrier();
        workgroupBarrier();
        for (var i = k + 1u + local; i < n; i += WORKGROUP) {
            let factor = load_a(base + i * n + k);
            {{ELIMINATE}}
        }
        storageBarrier();
        workgroupBarrier();
    }
}
