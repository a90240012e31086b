// Finds the first row past the last: summary[4] becomes the number of places from it to the end.
// Grid: one invocation per place.

{{ENTRY}} {
    let i = linear_id(workgroup_id, num_workgroups, local_index);
    if i < p.count && load_rows(i) >= p.limit {
        atomicMax(&summary[p.off_summary + 4u], p.count - i);
    }
}
