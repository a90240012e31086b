// The score that softmax sees for the product of a row of the query and a key. The row t counts
// within its head, s is the key, and mask_at is where the row's mask starts.

// Whether key s takes part in row t: by the causal rule and by the mask.
fn is_kept(t: u32, s: u32, mask_at: u32) -> bool {
    return ((s <= t) | ((p.flags & CAUSAL) == 0u)){{KEPT}};
}

fn score(product: f32, kept: bool, s: u32, mask_at: u32) -> f32 {
    let x = product * p.scale;
    let y = {{CAPPED}}{{BIAS}};
    return select(p.fill + select(0.0, y, (p.flags & PENALTY) != 0u), y, kept);
}
