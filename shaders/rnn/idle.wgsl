// Copies the states of sequences without steps, which keep them. Grid: an invocation for each
// column of each sequence.

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    let sequence = t / p.columns;
    if u32(load_lengths(sequence)) == 0u {
        let state = p.state_at + sequence * p.state_stride + t % p.columns;
        store_after(state, load_before(state));
    }
}
