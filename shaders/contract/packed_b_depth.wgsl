// c[n / COLUMNS][k][n % COLUMNS] = b[n][k], four columns of four steps at a time. Grid: one
// invocation for each square. Bindings: b, c.

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
    let vec4s = p.n / 4u;
    let n = t % vec4s * 4u;
    let k = t / vec4s * 4u;
    let at = k / p.inner * p.b_outer + k % p.inner + n * p.b_column;
    let b0 = load4_b(at);
    let b1 = load4_b(at + p.b_column);
    let b2 = load4_b(at + 2u * p.b_column);
    let b3 = load4_b(at + 3u * p.b_column);
    let to = (n / {{COLUMNS}} * p.depth + k) * {{COLUMNS}} + n % {{COLUMNS}};
    store4_c(to, vec4(b0.x, b1.x, b2.x, b3.x));
    store4_c(to + {{COLUMNS}}, vec4(b0.y, b1.y, b2.y, b3.y));
    store4_c(to + 2u * {{COLUMNS}}, vec4(b0.z, b1.z, b2.z, b3.z));
    store4_c(to + 3u * {{COLUMNS}}, vec4(b0.w, b1.w, b2.w, b3.w));
}
