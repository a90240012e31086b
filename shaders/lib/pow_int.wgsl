// x to the power y modulo 2^32, by squaring. A negative power gives the truncated quotient: 0, or 1
// and -1 for those bases.
fn pow_i32(x: i32, y: i32) -> i32 {
    if y < 0 {
        return select(select(0, 1 - 2 * (y & 1), x == -1), 1, x == 1);
    }
    var result = 1;
    var base = x;
    var rest = y;
    for (var k = 0u; k < 31u && rest != 0; k += 1u) {
        if (rest & 1) == 1 {
            result *= base;
        }
        base *= base;
        rest = rest >> 1u;
    }
    return result;
}
