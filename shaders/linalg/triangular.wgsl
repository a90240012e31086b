// Solves triangular systems of p.width equations, in place, for p.cols right-hand sides of each matrix:
// t = matrix * p.cols + column. Grid: one invocation for each t below p.count.
//
// Element (i, k) of a triangle is a[p.a_at + matrix * p.a_matrix + i * p.a_row + k * p.a_col], element (i, j) of a right-hand side is
// x[p.x_at + matrix * p.x_matrix + i * p.x_row + j]. p.backward is 1 for upper triangles, p.unit is 1 when the diagonal counts as ones.

@compute @workgroup_size({{WORKGROUP_SIZE}})
fn main(
    @builtin(workgroup_id) workgroup_id: vec3<u32>,
    @builtin(num_workgroups) num_workgroups: vec3<u32>,
    @builtin(local_invocation_index) local_index: u32,
) {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let matrix = t / p.cols;
    let a_base = p.a_at + matrix * p.a_matrix;
    let x_base = p.x_at + matrix * p.x_matrix + t % p.cols;
    let last = p.width - 1u;
    for (var s = 0u; s < p.width; s += 1u) {
        let i = select(s, last - s, p.backward != 0u);
        var value = load_x(x_base + i * p.x_row);
        for (var r = 0u; r < s; r += 1u) {
            let k = select(r, last - r, p.backward != 0u);
            value -= load_a(a_base + i * p.a_row + k * p.a_col) * load_x(x_base + k * p.x_row);
        }
        if p.unit == 0u {
            value /= load_a(a_base + i * (p.a_row + p.a_col));
        }
        store_x(x_base + i * p.x_row, value);
    }
}
