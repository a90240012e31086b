// Persistent workgroups: of `count` workgroups, each computes every `count`-th tile.
// Grid: the workgroups that run at once.

{{ENTRY}} {
    let count = num_workgroups.x * num_workgroups.y;
    let own = workgroup_id.y * num_workgroups.x + workgroup_id.x;
    for (var workgroup = own; workgroup < p.total; workgroup += count) {
        compute(place_of(workgroup), {{ARGUMENTS}});
    }
}
