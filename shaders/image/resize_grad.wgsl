// One axis of the gradient of resizing: dst[o, i, k] = sum over x of weight(x, i) * src[o, x, k],
// where x is a resized position. Grid: one invocation per stored unit, or four elements, of dst,
// which is (outer, p.extent, p.inner); src is (outer, p.resized, p.inner), and p.inner counts the
// units that an invocation computes.

fn value(e: u32) -> {{VALUE}} {
    let row = quotient(e, p.inner);
    let k = e - row * p.inner;
    let outer = quotient(row, p.extent);
    let i = row - outer * p.extent;
    let range = readers(i, p.scale, p.extent, p.resized);
    var at = (outer * p.resized + range.x) * p.inner + k;
    var sum = {{VALUE}}();
    for (var x = range.x; x < range.y; x += 1u) {
        let w = weight(x, i, p.scale, p.extent);
        if w != 0.0 {
            sum += {{REAL}}(w) * {{VALUE}}({{LOAD}}_src(at));
        }
        at += p.inner;
    }
    return sum;
}
