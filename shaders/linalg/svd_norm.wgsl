// norm[row] of p.rows rows of p.r elements; scale[row / p.k] is the factor of the row's matrix.
// Grid: one workgroup for each row.

alias real = {{REAL}};

var<workgroup> sums: array<real, WORKGROUP>;

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    let row = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    if row >= p.rows {
        return;
    }
    var sum = real(0.0);
    for (var t = local; t < p.r; t += WORKGROUP) {
        let x = load_w(row * p.r + t);
        sum += x * x;
    }
    sums[local] = sum;
    for (var step = WORKGROUP / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if local < step {
            sums[local] += sums[local + step];
        }
    }
    workgroupBarrier();
    if local == 0u {
        store_norm(row, sqrt(sums[0]) * load_scale(row / p.k));
    }
}
