// The element of `g`, shaped like the input, at the position that was selected from each window.
// Grid: one invocation per stored unit of the result. Bindings: x, y, g, result.

fn value(i: u32) -> Value {
    let at = place_of(i, out_extent());
    let taken = first_match(at.image, at.channel, at.x, load_y(i));
    if taken == NO_MATCH {
        return Value(0.0);
    }
    return load_g(taken);
}
