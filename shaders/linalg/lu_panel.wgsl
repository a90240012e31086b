// Columns p.first .. p.end of LU decompositions with partial pivoting, in place, of p.batch square
// matrices of p.n rows. Grid: one workgroup for each matrix; an invocation owns every WORKGROUP-th
// row.
//
// Whole rows are swapped, the columns beyond p.end are otherwise left as they are. permutation[i]
// is the row of the input that became row i. ACCESS are load_a and store_a where vec4s of a row are
// read and written at once, SWAP and ELIMINATE go over rows. state[2 * matrix] is 1 once a pivot
// was zero, state[2 * matrix + 1] counts the swaps. Ties of pivots go to the upper row.

{{NUMBERS}}
{{ACCESS}}

var<workgroup> best_size: array<real, WORKGROUP>;
var<workgroup> best_row: array<u32, WORKGROUP>;

{{ENTRY}} {
    let matrix = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    if matrix >= p.batch {
        return;
    }
    let n = p.n;
    let base = matrix * n * n;
    if p.first == 0u {
        for (var i = local_index; i < n; i += WORKGROUP) {
            store_permutation(matrix * n + i, i32(i));
        }
        if local_index < 2u {
            store_state(2u * matrix + local_index, 0);
        }
    }
    for (var k = p.first; k < p.end; k += 1u) {
        // The largest element of column k on and below the diagonal.
        var size = real(-1.0);
        var row = k;
        for (var i = k + local_index; i < n; i += WORKGROUP) {
            let candidate = modulus(load_a(base + i * n + k));
            if candidate > size {
                size = candidate;
                row = i;
            }
        }
        best_size[local_index] = size;
        best_row[local_index] = row;
        workgroupBarrier();
        for (var step = WORKGROUP / 2u; step > 0u; step /= 2u) {
            if local_index < step {
                let other = best_size[local_index + step];
                let lower = best_row[local_index + step];
                let own = best_size[local_index];
                if other > own || (other == own && lower < best_row[local_index]) {
                    best_size[local_index] = other;
                    best_row[local_index] = lower;
                }
            }
            workgroupBarrier();
        }
        let pivot_row = best_row[0];
        if pivot_row != k {
            {{SWAP}}
            if local_index == 0u {
                let upper = load_permutation(matrix * n + k);
                store_permutation(matrix * n + k, load_permutation(matrix * n + pivot_row));
                store_permutation(matrix * n + pivot_row, upper);
                store_state(2u * matrix + 1u, load_state(2u * matrix + 1u) + 1);
            }
        }
        storageBarrier();
        workgroupBarrier();
        let pivot = load_a(base + k * n + k);
        if modulus(pivot) == real(0.0) {
            if local_index == 0u {
                store_state(2u * matrix, 1);
            }
        } else {
            for (var i = k + 1u + local_index; i < n; i += WORKGROUP) {
                let factor = over(load_a(base + i * n + k), pivot);
                store_a(base + i * n + k, factor);
                {{ELIMINATE}}
            }
        }
        storageBarrier();
        workgroupBarrier();
    }
}
