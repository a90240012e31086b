// Reduces the middle of x[outer, p.extent, p.inner] to y[outer, p.segments, p.inner], one
// invocation for each output element (for each word of outputs where they are packed). Segment s
// combines the s-th of p.segments runs of neighbours. Grid: Grid::map over p.count outputs. Offsets
// count elements.

fn value(i: u32) -> {{OUTPUT}} {
    let k = i % p.inner;
    let rest = i / p.inner;
    let s = rest % p.segments;
    let o = rest / p.segments;
    let length = (p.extent + p.segments - 1u) / p.segments;
    let first = min(s * length, p.extent);
    return finish(reduce_run((o * p.extent + first) * p.inner + k, p.inner, min(length,
        p.extent - first)));
}
