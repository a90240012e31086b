// What the programs of attention that see each key once share: the scores that softmax sees, the
// number that is subtracted from them, and the weights. `row_of` has, of each row of the workgroup,
// its position in its head, where its mask and its query start, and its place in the result.

// Which of the keys take part in a row.
fn are_kept(row: vec4<u32>, s: vec4<u32>) -> vec4<bool> {
    return vec4<bool>(is_kept(row.x, s.x, row.y), is_kept(row.x, s.y, row.y),
        is_kept(row.x, s.z, row.y), is_kept(row.x, s.w, row.y));
}

// The scores that softmax sees for the products of a row and four keys.
fn scores_of(x: vec4<f32>, row: vec4<u32>, s: vec4<u32>, inside: vec4<bool>) -> vec4<f32> {
    let kept = are_kept(row, s);
    let scores = vec4<f32>(score(x.x, kept.x, s.x, row.y), score(x.y, kept.y, s.y, row.y),
        score(x.z, kept.z, s.z, row.y), score(x.w, kept.w, s.w, row.y));
    return select(vec4<f32>(p.lowest), scores, inside);
}

fn largest_of(v: vec4<f32>) -> f32 {
    return max(max(v.x, v.y), max(v.z, v.w));
}

// The number that is subtracted from scores. As long as there is no finite score, minus infinity
// less itself would be NaN.
fn base_of(largest: f32) -> f32 {
    return select(largest, 0.0, largest < LOWEST_FINITE);
}

// What the exponentials e of a row's scores weigh.
fn weight_of(e: vec4<f32>, row: u32, s: vec4<u32>) -> vec4<f32> {
    if (p.flags & ZERO_MASKED) == 0u {
        return e;
    }
    return select(vec4<f32>(), e, are_kept(row_of[row], s));
}

fn finished(sum: vec4<f32>, total: f32, largest: f32) -> vec4<f32> {
    return select(sum / total, vec4<f32>(not_a_number()), largest < LOWEST_FINITE);
}
