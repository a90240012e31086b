// Some of the classes: dispatches follow each other, and each keeps the best score so far and its
// class. Bindings: best_scores (float32), best_classes (uint32), behind the output.
fn first_class() -> u32 {
    return p.first_class;
}

fn end_class() -> u32 {
    return p.end_class;
}

fn finish(row: u32, score: f32, winner: u32) {
    var best_score = score;
    var best_class = winner;
    if p.first_class > 0u {
        let earlier_score = load_best_scores(row);
        let earlier_class = load_best_classes(row);
        if wins(earlier_score, earlier_class, score, winner) {
            best_score = earlier_score;
            best_class = earlier_class;
        }
    }
    store_best_scores(row, best_score);
    store_best_classes(row, best_class);
    store_y(row, {{CLASS}}(best_class));
}
