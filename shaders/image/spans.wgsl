// Sums a span of positions along the middle of src[outer, p.extent, p.inner], by weights of its own
// for each position of dst[outer, p.resized, p.inner]. spans holds the start of each span, then
// p.size weights of each; positions of a span beyond the extent do not count. Grid: one invocation
// for each element, or four elements, of dst; p.inner counts the units that an invocation computes.

fn value(e: u32) -> {{VALUE}} {
    let row = quotient(e, p.inner);
    let k = e - row * p.inner;
    let outer = quotient(row, p.resized);
    let x = row - outer * p.resized;
    let first = load_spans(x);
    let n = min(p.size, p.extent - first);
    let weights = p.resized + x * p.size;
    var at = (outer * p.extent + first) * p.inner + k;
    var sum = {{VALUE}}();
    for (var j = 0u; j < n; j += 1u) {
        sum += bitcast<f32>(load_spans(weights + j)) * {{VALUE}}({{LOAD}}_src(at));
        at += p.inner;
    }
    return sum;
}
