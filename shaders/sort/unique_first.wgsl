// firsts[i] is the position of the first element that equals element i (before, it holds slots[i]);
// marks[i] is 1 where that is i itself. Grid: one invocation per element.

{{ENTRY}} {
    let i = linear_id(workgroup_id, num_workgroups, local_index);
    if i >= p.count {
        return;
    }
    let slot = load_slots(i);
    var first = i;
    if slot != 0xffffffffu {
        first = load_table(slot);
    }
    store_slots(i, first);
    store_marks(i, select(0u, 1u, first == i));
}
