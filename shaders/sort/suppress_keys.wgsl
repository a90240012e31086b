// The scores of what was selected, each class's in p.limit places of its image's; places that
// nothing was selected for sort last. Grid: map.

fn value(i: u32) -> f32 {
    let row = i / p.limit;
    if i % p.limit >= load_state(row) {
        return p.nothing;
    }
    return load_scores(row * p.places + load_selected(i));
}
