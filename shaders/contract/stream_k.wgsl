// Stream-K: each workgroup computes its share of the steps of all tiles. It stores the tiles that
// lie within the share, and the sums of cut tiles to `partial`, for fix_up.wgsl. Workgroups do not
// wait for each other. Grid: one workgroup for each share. Bindings: a, b, c, the epilogue's
// operands, partial.

{{ENTRY}} {
    let share = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    let end = share_start(share + 1u);
    var step = share_start(share);
    while step < end {
        let tile = step / p.steps;
        let first = tile * p.steps;
        let next = min(first + p.steps, end);
        var place = place_of(tile);
        place.k_first = (step - first) * {{DEPTH}};
        place.k_end = min((next - first) * {{DEPTH}}, p.depth);
        let slot = select(2u * share + u32(step == first), WHOLE, next - step == p.steps);
        compute(place, slot, {{ARGUMENTS}});
        step = next;
    }
}
