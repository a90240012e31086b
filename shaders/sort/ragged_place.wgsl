// Places every value, and a default for every row without one: places[at] is the position of the
// value, or p.values for the default. filled[r] is the number of empty rows before r; int64 results
// are written as two words. Grid: t < p.values is a value in the order of rows, the others are
// rows.

fn store_row(at: u32, row: u32) {
    rowids[p.off_rowids + 2u * at] = row;
    rowids[p.off_rowids + 2u * at + 1u] = 0u;
}

{{ENTRY}} {
    let t = linear_id(workgroup_id, num_workgroups, local_index);
    if t >= p.count {
        return;
    }
    if t < p.values {
        let row = load_keys(t);
        let position = load_positions(t);
        let at = t + load_filled(row);
        store_row(at, row);
        store_places(at, position);
        reverse[p.off_reverse + 2u * position] = at;
        reverse[p.off_reverse + 2u * position + 1u] = 0u;
        return;
    }
    let row = t - p.values;
    if load_filled(row) != load_filled(row + 1u) {
        let at = load_bounds(row) + load_filled(row);
        store_row(at, row);
        store_places(at, p.values);
    }
}
