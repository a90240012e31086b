// Softmax or LogSoftmax of the rows of x[p.rows, p.cols]. Packed outputs need rows of whole words.
// Grid: LANES invocations for each row, spread over x and y. Offsets and p.cols count elements, or
// vec4s of them.

fn logit(row: u32, c: u32) -> Logits {
    return {{LOAD}};
}

fn result(row: u32, c: u32, largest: Value, sum: Value) -> Logits {
    let x = logit(row, c);
    return {{RESULT}};
}

{{ENTRY}} {
    let row = linear_id(workgroup_id, num_workgroups, local_index) / LANES;
    let lane = local_index % LANES;
    // Lanes past the last row take part in the barriers.
    let cols = select(0u, p.cols, row < p.rows);
    let largest = max_of_lanes(largest_of_row(row, cols, lane), lane, local_index);
    let sum = sum_of_lanes(exponentials_of_row(row, cols, lane, largest), lane, local_index);
    for (var c = lane * {{UNIT}}u; c < cols; c += LANES * {{UNIT}}u) {
        {{STORE}}
    }
}
