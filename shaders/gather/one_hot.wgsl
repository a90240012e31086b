// dst[a, d, b] = on where indices[a, b] is p.first + d, else off.
// Grid: one invocation per stored unit of dst.

fn value(i: u32) -> {{ELEMENT}} {
    let b = i % p.inner;
    let d = (i / p.inner) % p.classes;
    let a = i / (p.inner * p.classes);
    if row_of(a * p.inner + b) == p.first + d {
        return load_on(0u);
    }
    return load_off(0u);
}
