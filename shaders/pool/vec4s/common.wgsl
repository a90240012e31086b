// Four channels at once: everywhere p.channels counts vec4s of channels, and so do places and
// elements. Grid: one invocation for each of p.count units t, for which `unit(t)`
// computes and writes.

fn is_nan(v: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(v) & vec4(0x7fffffffu)) > vec4(0x7f800000u);
}

// Whether an element is the one selected from its window.
fn matches(v: vec4<f32>, best: vec4<f32>) -> vec4<bool> {
    return (v == best) | (is_nan(v) & is_nan(best));
}

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t < p.count {
        unit(t);
    }
}
