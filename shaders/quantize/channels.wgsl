// Elements of channel (p.first + t) / p.inner % p.channels, where the tensors are bound from
// element p.first on. Grid: one invocation per element.

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
    let x = load_x(t);
    let channel = (p.first + t) / p.inner % p.channels;
    {{STATEMENTS}}
}
