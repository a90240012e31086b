// Boxes of the best anchors of each image, moved and stretched by their deltas and clipped to the
// image. Grid: one invocation for each of the p.first best anchors of each image.
//
// Anchors, deltas and boxes are (y low, x low, y high, x high). An image's information is its
// height, its width, a scale, and two numbers more. Boxes that are smaller than p.least, scaled,
// get a score below all others.

{{ENTRY}} {
    let i = linear_id(workgroup_id, num_workgroups, local_index);
    if i >= p.count {
        return;
    }
    let image = i / p.first;
    let place = load_order(image * p.anchors_each + i % p.first);
    let anchor = place - image * p.anchors_each;
    let low = vec2(load_anchors(anchor * 4u), load_anchors(anchor * 4u + 1u));
    let high = vec2(load_anchors(anchor * 4u + 2u), load_anchors(anchor * 4u + 3u));
    let move_by = vec2(load_deltas(place * 4u), load_deltas(place * 4u + 1u));
    let stretch = vec2(load_deltas(place * 4u + 2u), load_deltas(place * 4u + 3u));
    let size = high - low;
    let center = low + 0.5 * size + size * move_by;
    // log(1000 / 16): no box becomes larger than that by its deltas.
    let half_size = 0.5 * size * exp(min(stretch, vec2(4.135166556742356)));
    let extent = vec2(load_images(image * 5u), load_images(image * 5u + 1u));
    let first = max(min(center - half_size, extent), vec2(0.0));
    let last = max(min(center + half_size, extent), vec2(0.0));
    let least = p.least * load_images(image * 5u + 2u);
    let lengths = last - first;
    store_boxes(i * 4u, first.x);
    store_boxes(i * 4u + 1u, first.y);
    store_boxes(i * 4u + 2u, last.x);
    store_boxes(i * 4u + 3u, last.y);
    store_kept(i, select(-1.0, 1.0, min(lengths.x, lengths.y) >= least));
    store_places(i, i);
}
