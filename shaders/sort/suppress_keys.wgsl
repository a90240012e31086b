// The scores of the selected boxes, each class's in p.limit places among its image's; places
// without a box sort last. Grid: map.

fn value(i: u32) -> f32 {
    let row = i / p.limit;
    if i % p.limit >= load_state(row) {
        return p.nothing;
    }
    return load_scores(row * p.places + load_selected(i));
}
