// The lines of x, each times the conjugate filter, with zeros up to p.size: y[outer, p.size,
// p.inner]. Grid: Grid::map over p.count elements of y. Offsets count elements.

fn value(i: u32) -> Complex {
    let c = i % p.inner;
    let k = (i / p.inner) % p.size;
    if k >= p.n {
        return Complex();
    }
    let w = load_chirp(k);
    return product(element(i / (p.inner * p.size), k, c), Complex(w.x, -w.y));
}
