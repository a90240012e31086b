// The definitions that the programs of a transform share: lines of x[outer, p.stride, p.inner],
// whose first p.available elements are used and followed by zeros, and of y[outer, p.kept,
// p.inner], which keeps the first elements. An inverse transform is the conjugate of the forward
// transform of the conjugate: p.sign is -1 for it, else 1.

alias Real = {{REAL}};
alias Complex = vec2<Real>;

fn product(a: Complex, b: Complex) -> Complex {
    return Complex(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

// Element k of line (o, c).
fn element(o: u32, k: u32, c: u32) -> Complex {
    {{ELEMENT}}
}

// Keeps element k of line (o, c), divided by p.divisor.
fn keep(o: u32, k: u32, c: u32, v: Complex) {
    if k < p.kept {
        let z = v * (Real(1.0) / Real(p.divisor));
        {{KEEP}}
    }
}
