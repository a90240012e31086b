// Truncation to 64-bit integers. Values beyond the range give its end, NaN gives 0.

fn f32_to_u64(x: f32) -> u64 {
    if is_nan_f32(x) || x < 1.0 {
        return 0lu;
    }
    if x >= 18446744073709551616.0 {
        return ~0lu;
    }
    // By bits: drivers differ in conversions beyond 2^63.
    let bits = bitcast<u32>(x);
    let significand = u64((bits & 0x7fffffu) | 0x800000u);
    let exponent = i32(bits >> 23u) - 150;
    if exponent < 0 {
        return significand >> u32(-exponent);
    }
    return significand << u32(exponent);
}

fn f32_to_i64(x: f32) -> i64 {
    let magnitude = f32_to_u64(abs(x));
    if magnitude >= (1lu << 63u) {
        return select(~(1li << 63u), 1li << 63u, x < 0.0);
    }
    return select(i64(magnitude), -i64(magnitude), x < 0.0);
}
