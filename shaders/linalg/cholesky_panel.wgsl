// Columns p.first .. p.end of Cholesky decompositions, in place in the lower triangles, of p.batch
// square matrices of p.n rows, from which the products with columns before p.first have been
// subtracted already. p.n, p.first and p.end are multiples of 8. Grid: one workgroup for each
// matrix; an invocation owns every WORKGROUP-th row.
//
// EDGE columns at a time, 8 or 4: an invocation has EDGE elements of its row in registers, and
// subtracts the products with the panel's columns before them. The elements of the first EDGE rows
// go through workgroup memory to all invocations, each of which decomposes that block by itself and
// then solves for its rows. So EDGE columns take two barriers. (Golub and Van Loan, Matrix
// Computations, 4.2, in the order of gaxpy.)
//
// state[matrix] becomes 1 at the first pivot that is not positive; from there on the matrix holds
// nothing of use. Elements above the diagonal change, too.

const EDGE = {{EDGE}}u;

{{NUMBERS}}

{{ACCESS}}
// Columns of the block on the diagonal.
var<workgroup> diagonal: array<number, EDGE * EDGE>;

{{ENTRY}} {
    let matrix = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    if matrix >= p.batch {
        return;
    }
    let n = p.n;
    let base = matrix * n * n;
    if p.first == 0u && local_index == 0u {
        store_state(matrix, 0);
    }
    for (var j = p.first; j < p.end; j += EDGE) {
{{DECLARE}}
        for (var row = j; row < n; row += WORKGROUP) {
            // Rows past the last one repeat it and store the same values.
            let i = min(row + local_index, n - 1u);
            let own = base + i * n;
{{SUMS}}
            for (var k = p.first; k < j; k += 4u) {
                let x = load_four(own + k);
{{STEP}}
            }
            if row == j {
                if local_index < EDGE {
{{PUT}}
                }
                workgroupBarrier();
                var is_positive = true;
{{FACTOR}}
                if local_index == 0u && !is_positive {
                    store_state(matrix, 1);
                }
            }
{{SOLVE}}
{{FINISH}}
        }
        storageBarrier();
    }
}
