// The square root of a 64-bit integer without its fraction, as C computes it in double: the integer
// is rounded to 53 bits first, and a root just below a whole number may be rounded to it.

const ROOT_LOW = 0xfffffffflu;

// 64 for 0.
fn root_leading_zeros(a: u64) -> u32 {
    let high = u32((a >> 32u) & ROOT_LOW);
    return select(countLeadingZeros(high), 32u + countLeadingZeros(u32(a & ROOT_LOW)), high == 0u);
}

// The nearest number of 53 bits, ties to even; 0 stands for 2^64.
fn root_rounded(a: u64) -> u64 {
    let zeros = root_leading_zeros(a);
    if zeros >= 11u {
        return a;
    }
    let shift = 11u - zeros;
    let unit = 1lu << shift;
    let low = a & (unit - 1lu);
    let kept = a - low;
    let half = unit >> 1u;
    return select(kept, kept + unit, low > half || (low == half && (kept & unit) != 0lu));
}

fn root_u64(a: u64) -> u64 {
    let rounded = root_rounded(a);
    if rounded == 0lu {
        return select(0lu, 1lu << 32u, a != 0lu);
    }
    var rest = rounded;
    var root = 0lu;
    for (var k = 0u; k < 32u; k += 1u) {
        let bit = 1lu << (62u - 2u * k);
        let taken = root + bit;
        root = root >> 1u;
        if rest >= taken {
            rest -= taken;
            root += bit;
        }
    }
    // The distance of the next square, against half a unit in the last place of its root.
    let next = root + 1lu;
    let exponent = 63u - root_leading_zeros(root);
    if exponent < 26u {
        return root;
    }
    let missing = root + next - rest;
    return select(root, next, (missing << (52u - exponent)) < next);
}

// Negative numbers, which overflow may give, have NaN as their root: the lowest integer.
fn root_i64(a: i64) -> i64 {
    let root = i64(root_u64(u64(max(a, 0li))));
    return select(root, ~0x7fffffffffffffffli, a < 0li);
}
