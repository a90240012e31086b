// Solves lower triangular systems of p.width equations, in place, for p.cols right-hand sides (or
// vec4s of them: `value`) of each matrix. Grid: one invocation for each right-hand side of each
// matrix, p.count in all.
//
// Eight equations at a time: their right-hand sides are in registers while the loop goes over the
// unknowns before them. Element (i, k) of a triangle is a[p.a_at + matrix * p.a_matrix + i *
// p.a_row + k * p.a_col], element (i, j) of a right-hand side is x[p.x_at + matrix * p.x_matrix + i
// * p.x_row + j]. Upper triangles come with negative strides. p.unit is 1 when the diagonal counts
// as ones. Rows past the last one repeat it and are not stored.

{{NUMBERS}}

alias value = {{VALUE}};

{{ACCESS}}
{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let matrix = t / p.cols;
    let last = p.width - 1u;
    let a_base = p.a_at + matrix * p.a_matrix;
    let x_base = p.x_at + matrix * p.x_matrix + t % p.cols;
    for (var j = 0u; j < p.width; j += 8u) {
{{BEGIN}}
        for (var k = 0u; k < j; k += 1u) {
            let x = load_value(x_base + k * p.x_row);
{{STEP}}
        }
{{FINISH}}
    }
}
