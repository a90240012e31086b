// A box of p.sizes within a whole of p.extents, p.rank dimensions each, at a place that start
// holds: p.index_words words for each coordinate, little-endian. A box that would not lie inside is
// moved to the nearest place where it does. Offsets count elements.

// The box's first coordinate in dimension d.
fn place(d: u32) -> u32 {
    let most = p.extents[d / 4u][d % 4u] - p.sizes[d / 4u][d % 4u];
    let low = load_start(d * p.index_words);
    var high = select(0u, 0xffffffffu, low >= 0x80000000u);
    if p.index_words == 2u {
        high = load_start(2u * d + 1u);
    }
    if high >= 0x80000000u {
        return 0u;
    }
    return select(most, min(low, most), high == 0u);
}

// Where element i of the box lies in the whole.
fn in_whole(i: u32) -> u32 {
    var rest = i;
    var at = 0u;
    var stride = 1u;
    for (var k = 0u; k < p.rank; k += 1u) {
        let d = p.rank - 1u - k;
        let size = p.sizes[d / 4u][d % 4u];
        let outer = quotient(rest, size);
        at += (rest - outer * size + place(d)) * stride;
        stride *= p.extents[d / 4u][d % 4u];
        rest = outer;
    }
    return at;
}
