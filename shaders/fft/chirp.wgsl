// The filter of Bluestein's algorithm for lines of p.n elements in a cyclic convolution of p.size:
// exp(pi i k^2 / n) for |k| < n. Grid: Grid::map over p.count = p.size. Offsets count elements.

alias Real = {{REAL}};
alias Complex = vec2<Real>;

{{TURN}}
// k^2 modulo n < 2^28, three bits at a time so that nothing exceeds 32 bits.
fn square_modulo(k: u32, n: u32) -> u32 {
    var square = 0u;
    for (var shift = 27; shift >= 0; shift -= 3) {
        square = (square * 8u + ((k >> u32(shift)) & 7u) * k) % n;
    }
    return square;
}

fn value(i: u32) -> Complex {
    let k = min(i, p.size - i);
    if k >= p.n {
        return Complex();
    }
    let w = turn(square_modulo(k, 2u * p.n), 2u * p.n);
    return Complex(w.x, -w.y);
}
