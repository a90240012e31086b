fn flags(first: u32) -> u32 {
    var bits = 0u;
    for (var k = 0u; k < 32u; k += 1u) {
        bits |= select(1u, 0u, {{ZERO}}) << k;
    }
    return bits;
}
