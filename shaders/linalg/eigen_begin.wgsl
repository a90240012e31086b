// Starts Jacobi iterations on matrices of p.n rows: `a` becomes Hermitian with the lower triangle
// of `x`, `basis` becomes the identity. Grid: map over the elements.

{{NUMBERS}}

fn value(t: u32) -> number {
    let base = t / (p.n * p.n) * p.n * p.n;
    let i = t / p.n % p.n;
    let j = t % p.n;
    store_basis(t, number_of(select(real(0.0), real(1.0), i == j)));
    let z = load_x(base + max(i, j) * p.n + min(i, j));
    return select(select(z, conjugate(z), i < j), number_of(real_of(z)), i == j);
}
