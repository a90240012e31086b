// The gradient of mirroring one axis: an element of dst is the sum of the elements of src that
// mirroring copied from it, at most one in the middle, one before and one after it. Sums are in the
// type that shaders compute in. Grid: one invocation per stored unit of dst, which is (outer,
// p.extent, inner); src is (outer, p.padded, inner).

fn value(i: u32) -> {{VALUE}} {
    let k = i % p.inner;
    let c = (i / p.inner) % p.extent;
    let base = (i / (p.inner * p.extent)) * p.padded;
    var sum = load_src((base + p.before + c) * p.inner + k);
    // p.skip is 1 where the edge element itself is not repeated. Mirrored positions are p.before -
    // (c + 1) + skip to the left.
    if c >= p.skip && c + 1u <= p.before + p.skip {
        sum += load_src((base + p.before - (c + 1u - p.skip)) * p.inner + k);
    }
    let from_end = p.extent - 1u - c;
    if from_end >= p.skip && from_end + 1u <= p.after + p.skip {
        sum += load_src((base + p.before + p.extent + from_end - p.skip) * p.inner + k);
    }
    return sum;
}
