// The best boxes of each image, over all classes. Grid: one invocation for each place of the
// outputs, p.total for each image; places behind the last box hold zeros.

{{ENTRY}} {
    let i = linear_id(workgroup_id, num_workgroups, local_index);
    if i >= p.count {
        return;
    }
    let image = i / p.total;
    let candidates = p.classes * p.limit;
    var found = vec4(0.0);
    var score = 0.0;
    var class_number = 0u;
    if i % p.total < candidates {
        let place = load_order(image * candidates + i % p.total);
        let row = place / p.limit;
        if place % p.limit < load_state(row) {
            class_number = row % p.classes;
            score = load_keys(place);
            let box = (image * p.places + load_selected(place)) * p.box_classes
                + class_number % p.box_classes;
            found = vec4(load_boxes(box * 4u), load_boxes(box * 4u + 1u),
                load_boxes(box * 4u + 2u), load_boxes(box * 4u + 3u));
            if p.clips != 0u {
                found = clamp(found, vec4(0.0), vec4(1.0));
            }
        }
    }
    store_out_boxes(i * 4u, found.x);
    store_out_boxes(i * 4u + 1u, found.y);
    store_out_boxes(i * 4u + 2u, found.z);
    store_out_boxes(i * 4u + 3u, found.w);
    store_out_scores(i, score);
    store_out_classes(i, f32(class_number));
}
