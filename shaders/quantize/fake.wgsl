// Elements t of channel t % p.channels. A row of ranges holds least and largest value, step, its
// inverse, the number of steps from the least value to zero, and 1 if both bounds were zero: then
// values are zero and gradients pass. Grid: one invocation per element.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let r = t % p.channels * 6u;
    let x = load_x(t);
    let low = load_ranges(r);
    let high = load_ranges(r + 1u);
    let inside = (x >= low && x <= high) || load_ranges(r + 5u) != 0.0;
    {{BODY}}
}
