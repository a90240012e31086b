// c[n / COLUMNS][k][n % COLUMNS] = b[k][n], four columns at a time. Grid: one invocation for each
// four. Bindings: b, c.

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
    let k = t / vec4s;
    let at = k / p.inner * p.b_outer + k % p.inner * p.b_step + n;
    store4_c((n / {{COLUMNS}} * p.depth + k) * {{COLUMNS}} + n % {{COLUMNS}}, load4_b(at));
}
