// The index of the element that was selected from each window, counted within its image where
// `per_image` is not 0 (it is the number of elements of an image), and from `base` on; -1 where the
// output belongs to another input.
// Grid: one invocation per element of the result. Bindings: x, y, result (int64).

fn value(i: u32) -> i64 {
    let earlier = so_far(i, -1li);
    if earlier >= 0li {
        return earlier;
    }
    let at = place_of(i, out_extent());
    let taken = first_match(at.image, at.channel, at.x, load_y(i));
    if taken == NO_MATCH {
        return -1li;
    }
    return i64(taken - at.image * p.per_image) + i64(p.base);
}
