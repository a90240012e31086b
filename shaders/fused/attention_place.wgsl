    // A workgroup past the last one computes the last one's rows again and stores the same values.
    let workgroup = min(workgroup_id.y * num_workgroups.x + workgroup_id.x, p.total - 1u);
    let rows = p.queries * p.group;
    let tiles = (rows + ROWS - 1u) / ROWS;
    let splits = (p.keys + p.chunk - 1u) / p.chunk;
    let first_row = workgroup % tiles * ROWS;
    let split = workgroup / tiles % splits;
    let matrix = workgroup / tiles / splits;
    let key_heads = p.heads / p.group;
    let b = matrix / key_heads;
    let key_head = matrix % key_heads;
    let keys_at = b * p.k_b + key_head * p.k_h;
    let values_at = b * p.v_b + key_head * p.v_h;
    let first = split * p.chunk;
    // The last row of the tile sees the most keys, unless the tile reaches into another head.
    let last = min(first_row + ROWS, rows) - 1u;
    let is_one_head = last / p.queries == first_row / p.queries;
    let seen = select(p.queries, last % p.queries + 1u, is_one_head);
    let past = select(p.keys, min(p.keys, seen), (p.flags & SKIP) != 0u);
    let end = max(first, min(first + p.chunk, past));
    for (var slot = local_index; slot < ROWS; slot += WORKGROUP) {
        let inside = min(first_row + slot, rows - 1u);
        let h = key_head * p.group + inside / p.queries;
        let t = inside % p.queries;
        row_of[slot] = vec4<u32>(t, b * p.m_b + h * p.m_h + t * p.m_t,
            b * p.q_b + h * p.q_h + t * p.q_t, result_row(b, h, t));
    }
