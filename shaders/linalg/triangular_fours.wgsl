// Solves triangular systems as triangular.wgsl does, for four neighbouring right-hand sides at once: t = matrix * p.cols + column, where
// p.cols, p.x_at, p.x_matrix and p.x_row count fours. Grid: one invocation for each t below p.count.

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
    let x_base = p.off_x + p.x_at + matrix * p.x_matrix + t % p.cols;
    let last = p.width - 1u;
    for (var s = 0u; s < p.width; s += 1u) {
        let i = select(s, last - s, p.backward != 0u);
        var value = x[x_base + i * p.x_row];
        for (var r = 0u; r < s; r += 1u) {
            let k = select(r, last - r, p.backward != 0u);
            value -= load_a(a_base + i * p.a_row + k * p.a_col) * x[x_base + k * p.x_row];
        }
        if p.unit == 0u {
            value /= load_a(a_base + i * (p.a_row + p.a_col));
        }
        x[x_base + i * p.x_row] = value;
    }
}
