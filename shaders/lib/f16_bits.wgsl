// The 16 bits of `v` as IEEE binary16, rounded to nearest even. `pack2x16float` leaves rounding to
// the driver (some truncate) and its result for overflow undefined, hence integer arithmetic. There
// are no branches, since some drivers execute every side of one.
fn f16_bits(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    let magnitude = bits & 0x7fffffffu;
    // 0xc8000fff is half of the last place less one, less the exponents' difference of 112. 65520
    // and above round to infinity.
    let normal = min((magnitude + 0xc8000fffu + extractBits(magnitude, 13u, 1u)) >> 13u, 0x7c00u);
    // Below 2^-14 the result is subnormal. Its last place, 2^-24, is that of a float32 from 0.5 to
    // 1, so the sum is rounded there. Its lowest bits are the result.
    let subnormal = bitcast<u32>(bitcast<f32>(magnitude) + 0.5) - 0x3f000000u;
    let half = select(normal, subnormal, magnitude < 0x38800000u);
    return ((bits >> 16u) & 0x8000u) | select(half, 0x7e00u, magnitude > 0x7f800000u);
}

// The words of four values.
fn f16_words(v: vec4<f32>) -> vec2<u32> {
    return vec2(
        f16_bits(v.x) | (f16_bits(v.y) << 16u),
        f16_bits(v.z) | (f16_bits(v.w) << 16u),
    );
}
