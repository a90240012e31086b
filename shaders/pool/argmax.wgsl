// The index of the element that each window took, counted within its image where `per_image` is not
// 0 (elements of an image), and from `base` on. Grid: one invocation per element of the result.
// Bindings: x, y, result (int64).

fn value(i: u32) -> i64 {
    let at = place_of(i, out_extent());
    return i64(first_match(at.image, at.channel, at.x,
        load_y(i)) - at.image * p.per_image) + i64(p.base);
}
