// c[m][k] = a[m][k], from any strides to rows that follow each other, four steps at a time. Grid:
// one invocation for each four. Bindings: a, c.

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
    let at = t / p.vec4s * p.a_row + t % p.vec4s * 4u * p.a_step;
    store4_c(t * 4u, vec4(load_a(at), load_a(at + p.a_step), load_a(at + 2u * p.a_step),
        load_a(at + 3u * p.a_step)));
}
