// The 16 bits of `v` as IEEE binary16, rounded to nearest even. `pack2x16float` leaves rounding to
// the driver (some truncate) and its result for overflow undefined, hence integer arithmetic. There
// are no branches, since some drivers execute every side of one.
fn f16_bits(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    let magnitude = bits & 0x7fffffffu;
    let normal = ((magnitude + 0xfffu + ((magnitude >> 13u) & 1u)) >> 13u) - 0x1c000u;
    // Below 2^-14 the result is subnormal: the significand is rounded at the fixed exponent -24. A
    // shift of 25 or more leaves 0.
    let significand = (magnitude & 0x7fffffu) | 0x800000u;
    let shift = 126u - clamp(magnitude >> 23u, 95u, 125u);
    let subnormal = (significand + (1u << (shift - 1u)) - 1u
        + ((significand >> shift) & 1u)) >> shift;
    var half = select(normal, subnormal, magnitude < 0x38800000u);
    // 65520 and above round to infinity.
    half = select(half, 0x7c00u, magnitude >= 0x477ff000u);
    half = select(half, 0x7e00u, magnitude > 0x7f800000u);
    return ((bits >> 16u) & 0x8000u) | half;
}
