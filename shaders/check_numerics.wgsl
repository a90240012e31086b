// Sets bit 0 of flags for a NaN, bit 1 for infinity, bit 2 for minus infinity.
// Grid: one invocation per element.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let x = load_x(t);
    var found = 0u;
    if is_nan_{{SUFFIX}}(x) {
        found = 1u;
    } else if is_inf_{{SUFFIX}}(x) {
        found = select(2u, 4u, is_negative_{{SUFFIX}}(x));
    }
    if found != 0u {
        atomicOr(&flags[p.off_flags], found);
    }
}
