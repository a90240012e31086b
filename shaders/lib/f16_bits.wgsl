// The 16 bits of `v` as IEEE binary16, rounded to nearest even. `pack2x16float` leaves rounding to the driver (some truncate)
// and its result for overflow undefined, hence integer arithmetic.
fn f16_bits(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    let sign = (bits >> 16u) & 0x8000u;
    let magnitude = bits & 0x7fffffffu;
    if magnitude > 0x7f800000u {
        return sign | 0x7e00u;
    }
    // 65520 and above round to infinity.
    if magnitude >= 0x477ff000u {
        return sign | 0x7c00u;
    }
    // Below 2^-14 the result is subnormal: round the significand at the fixed exponent -24.
    if magnitude < 0x38800000u {
        let exponent = magnitude >> 23u;
        if exponent < 102u {
            return sign;
        }
        let significand = (magnitude & 0x7fffffu) | 0x800000u;
        let shift = 126u - exponent;
        let half = (1u << (shift - 1u)) - 1u;
        return sign | ((significand + half + ((significand >> shift) & 1u)) >> shift);
    }
    let rounded = magnitude + 0xfffu + ((magnitude >> 13u) & 1u);
    return sign | ((rounded >> 13u) - 0x1c000u);
}
