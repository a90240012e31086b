// Writes the selected boxes, with zeros behind them. Grid: one invocation for each place of the
// outputs, p.total for each image.

{{ENTRY}} {
    let i = linear_id(workgroup_id, num_workgroups, local_index);
    if i >= p.count {
        return;
    }
    let image = i / p.total;
    let n = i % p.total;
    var found = vec4(0.0);
    var score = 0.0;
    if n < p.limit && n < load_state(image) {
        let place = load_selected(image * p.limit + n);
        let box = (image * p.first + place) * 4u;
        found = vec4(load_boxes(box), load_boxes(box + 1u), load_boxes(box + 2u),
            load_boxes(box + 3u));
        score = load_scores(load_order(image * p.anchors_each + place));
    }
    store_out_boxes(i * 4u, found.x);
    store_out_boxes(i * 4u + 1u, found.y);
    store_out_boxes(i * 4u + 2u, found.z);
    store_out_boxes(i * 4u + 3u, found.w);
    store_out_scores(i, score);
}
