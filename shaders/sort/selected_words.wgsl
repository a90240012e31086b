// Bit k tells whether byte k of the 32 from element `first` on is not 0; `first` is a multiple of
// 32, but a tensor may begin inside of a word.
fn flags(first: u32) -> u32 {
    let word = (p.off_x + first) >> 2u;
    let shift = p.off_x & 3u;
    var bits = 0u;
    for (var k = 0u; k < 8u; k += 1u) {
        bits |= four(x[word + k]) << (4u * k);
    }
    if shift != 0u {
        bits = (bits >> shift) | (four(x[word + 8u]) << (32u - shift));
    }
    return bits;
}

fn four(word: u32) -> u32 {
    let each = ((((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word) >> 7u) & 0x01010101u;
    return (each * 0x01020408u) >> 24u;
}
