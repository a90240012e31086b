// Cross entropy of the softmax of logits with labels, a loss for each of p.rows rows, and its
// gradient [p.rows, p.cols]. Logits and dense labels are broadcast by strides of 0. LABEL is the
// row's class (sparse) or the element's weight (dense). Sparse labels outside [0, cols) give NaN in
// the loss and the row's gradient, as TensorFlow's GPU kernel does. Grid: LANES invocations for
// each row, spread over x and y. Offsets, strides and p.cols count elements, or vec4s of them
// except for sparse labels and losses.

fn logit(row: u32, c: u32) -> Logits {
    return {{LOAD}};
}

{{LABEL}}

fn gradient(row: u32, c: u32, largest: Value, sum: Value) -> Logits {
    return {{EXP}}(logit(row, c) - largest) / sum - label(row, c);
}

{{ENTRY}} {
    let row = linear_id(workgroup_id, num_workgroups, local_index) / LANES;
    let lane = local_index % LANES;
    let cols = select(0u, p.cols, row < p.rows);
    let largest = max_of_lanes(largest_of_row(row, cols, lane), lane, local_index);
    let sum = sum_of_lanes(exponentials_of_row(row, cols, lane, largest), lane, local_index);
    let log_sum = {{LOG}}(sum);
    var own = Value(0.0);
    {{ADD_LABEL}}
    for (var c = lane * {{UNIT}}u; c < cols; c += LANES * {{UNIT}}u) {
        {{ADD_LOSS}}
        {{STORE}}
    }
    let loss = sum_of_lanes(own, lane, local_index);
    if lane == 0u && row < p.rows {
        store_loss(row, select(loss, Value(p.nan), is_invalid(row)));
    }
}
