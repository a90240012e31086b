// Reduces the middle of x[outer, p.extent, p.inner] to y[outer, p.segments, p.inner], one invocation for each output element
// (for each word of outputs where they are packed). Segment s combines the elements s, s + segments, …, so that neighbouring
// invocations read neighbouring elements.
// Grid: Grid::map over p.count outputs. Offsets count elements.

fn value(i: u32) -> {{OUTPUT}} {
    let k = i % p.inner;
    let rest = i / p.inner;
    let s = rest % p.segments;
    let o = rest / p.segments;
    let n = (p.extent + p.segments - 1u - s) / p.segments;
    return finish(reduce_run((o * p.extent + s) * p.inner + k, p.segments * p.inner, n));
}
