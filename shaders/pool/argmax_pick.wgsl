// The element of `g`, shaped like the input, that argmax names; zero where it names none.
// Grid: one invocation per stored unit of the result. Bindings: argmax (int64), g, result.

fn value(i: u32) -> Value {
    let index = load_argmax(i) + i64(place_of(i, out_extent()).image * p.per_image) - i64(p.base);
    if index < 0li || index >= i64(p.elements) {
        return Value(0.0);
    }
    return load_g(u32(index));
}
