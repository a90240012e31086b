// Rows of x, each of p.depth elements, with zeros up to p.width, in f32.
// Grid: one invocation per element of y. Bindings: x, y (count).

fn value(i: u32) -> f32 {
    let column = i % p.width;
    let is_inside = column < p.depth;
    return select(0.0, load_x(select(0u, i / p.width * p.depth + column, is_inside)), is_inside);
}
