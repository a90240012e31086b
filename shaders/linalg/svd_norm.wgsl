// Computes norm[row] for p.rows rows of p.r elements; scale[row / p.k] is the factor of the row's
// matrix.
// Grid: one workgroup for each row.

alias real = {{REAL}};

var<workgroup> sums: array<real, WORKGROUP>;

{{ENTRY}} {
    let row = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    if row >= p.rows {
        return;
    }
    var sum = real(0.0);
    for (var t = local_index; t < p.r; t += WORKGROUP) {
        let x = load_w(row * p.r + t);
        sum += x * x;
    }
    sums[local_index] = sum;
    for (var step = WORKGROUP / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if local_index < step {
            sums[local_index] += sums[local_index + step];
        }
    }
    workgroupBarrier();
    if local_index == 0u {
        store_norm(row, sqrt(sums[0]) * load_scale(row / p.k));
    }
}
