// dst is src, except in a box of p.sizes that begins at p.begin: there an element comes from part
// if the mask holds. p.mask_strides count the mask's elements. dst may be src.
// Grid: Unit::grid over p.count elements of dst.

fn value(i: u32) -> u32 {
    var rest = i;
    var at = 0u;
    var stride = 1u;
    var of_mask = 0u;
    for (var k = 0u; k < p.rank; k += 1u) {
        let d = p.rank - 1u - k;
        let size = p.sizes[d / 4u][d % 4u];
        let outer = quotient(rest, p.extents[d / 4u][d % 4u]);
        // Coordinates before the box wrap and become large.
        let c = rest - outer * p.extents[d / 4u][d % 4u] - p.begin[d / 4u][d % 4u];
        if c >= size {
            return load_src(i);
        }
        at += c * stride;
        of_mask += c * p.mask_strides[d / 4u][d % 4u];
        stride *= size;
        rest = outer;
    }
    if load_mask(of_mask) == 0u {
        return load_src(i);
    }
    return load_part(at);
}
