// Starts one-sided Jacobi iterations: the columns of p.batch matrices (with p.wide, of their
// transposes) become rows of `w` (p.k rows of p.r elements), and `basis` becomes the identity.
// Grid: one workgroup for each matrix.
//
// Elements so large or small that their squares leave the type's range are scaled; scale[matrix]
// undoes that.

alias real = {{REAL}};

var<workgroup> largest: array<real, WORKGROUP>;

{{ENTRY}} {
    let matrix = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    if matrix >= p.batch {
        return;
    }
    let count = p.k * p.r;
    let base = matrix * count;
    var size = real(0.0);
    for (var t = local_index; t < count; t += WORKGROUP) {
        size = max(size, abs(load_x(base + t)));
    }
    largest[local_index] = size;
    for (var step = WORKGROUP / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if local_index < step {
            largest[local_index] = max(largest[local_index], largest[local_index + step]);
        }
    }
    workgroupBarrier();
    let bound = largest[0];
    var factor = real(1.0);
    if bound > real({{LARGE}}) || (bound < real({{SMALL}}) && bound > real(0.0)) {
        factor = bound;
    }
    if local_index == 0u {
        store_scale(matrix, factor);
    }
    for (var t = local_index; t < count; t += WORKGROUP) {
        let j = t / p.r;
        let i = t % p.r;
        store_w(base + t, load_x(base + select(i * p.k + j, t, p.wide != 0u)) / factor);
    }
    for (var t = local_index; t < p.k * p.k; t += WORKGROUP) {
        store_basis(matrix * p.k * p.k + t, select(real(0.0), real(1.0), t / p.k == t % p.k));
    }
}
