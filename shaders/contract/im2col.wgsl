// c[o * inner + i][m] = a[m] at step i of line o, see rows_window.wgsl, four rows at a time; zero
// outside the input. Grid: one invocation for each four rows of each line. Bindings: a, c.

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
    let vec4s = p.m / 4u;
    let m = t % vec4s * 4u;
    let o = t / vec4s;
    let row = a_row(m);
    let line = a_line(row, o);
    for (var i = 0u; i < p.inner; i += 1u) {
        let inside = line.inside && a_inside(row, i);
        let v = load4_a(select(0u, line.at + i * p.a_step, inside));
        store4_c((o * p.inner + i) * p.m + m, select({{QUAD}}(), v, inside));
    }
}
