// The properties of segment ids that the host needs: summary[0] is set if an id is less than the
// one before, summary[1] if one is negative; summary[2] and [3] are the words of the last id. Also
// narrows the ids to 32 bits. Grid: one invocation per id.

fn low(i: u32) -> u32 {
    return numbers[p.off_numbers + i * p.words];
}

// The high word of an id; for int32, its sign.
fn high(i: u32) -> i32 {
    let word = bitcast<i32>(numbers[p.off_numbers + (i + 1u) * p.words - 1u]);
    return select(word, word >> 31u, p.words == 1u);
}

{{ENTRY}} {
    let i = linear_id(workgroup_id, num_workgroups, local_index);
    if i >= p.count {
        return;
    }
    store_ids(i, low(i));
    if high(i) < 0 {
        store_summary(1u, 1u);
    }
    if i > 0u && (high(i - 1u) > high(i) || (high(i - 1u) == high(i) && low(i - 1u) > low(i))) {
        store_summary(0u, 1u);
    }
    if i + 1u == p.count {
        store_summary(2u, low(i));
        store_summary(3u, bitcast<u32>(high(i)));
    }
}
