// y[outer, p.size, p.inner] times the transformed filter, in place.
// Grid: Grid::map over p.count elements of y. Offsets count elements.

fn value(i: u32) -> vec2<{{REAL}}> {
    let a = load_y(i);
    let b = load_chirp((i / p.inner) % p.size);
    return vec2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
