// x to the power y modulo 2^64, by squaring. A negative power gives the truncated quotient: 0, or 1
// and -1 for those bases.
fn pow_i64(x: i64, y: i64) -> i64 {
    if y < 0li {
        return select(select(0li, 1li - 2li * (y & 1li), x == -1li), 1li, x == 1li);
    }
    var result = 1li;
    var base = x;
    var rest = y;
    for (var k = 0u; k < 63u && rest != 0li; k += 1u) {
        if (rest & 1li) == 1 {
            result *= base;
        }
        base *= base;
        rest = rest >> 1u;
    }
    return result;
}
