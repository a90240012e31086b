// dst is src except for the box, which is part. Grid: Unit::grid over p.count elements of dst,
// which may be src.

fn value(i: u32) -> {{ELEMENT}} {
    var rest = i;
    var at = 0u;
    var stride = 1u;
    for (var k = 0u; k < p.rank; k += 1u) {
        let d = p.rank - 1u - k;
        let size = p.sizes[d / 4u][d % 4u];
        let outer = quotient(rest, p.extents[d / 4u][d % 4u]);
        let c = rest - outer * p.extents[d / 4u][d % 4u];
        let first = place(d);
        // Coordinates before the first one wrap and become large.
        if c - first >= size {
            return load_src(i);
        }
        at += (c - first) * stride;
        stride *= size;
        rest = outer;
    }
    return load_part(at);
}
