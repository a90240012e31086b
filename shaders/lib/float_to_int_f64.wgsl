// Truncation of float64 to integers, by bits: drivers' conversions beyond the range differ. Values
// beyond it give its end, NaN gives 0.

fn f64_to_u64(x: f64) -> u64 {
    if is_nan_f64(x) || x < 1.0lf {
        return 0lu;
    }
    if x >= 18446744073709551616.0lf {
        return ~0lu;
    }
    let bits = bitcast<u64>(x);
    let significand = (bits & 0xffffffffffffflu) | 0x10000000000000lu;
    let exponent = i32(u32(bits >> 52u)) - 1075;
    if exponent < 0 {
        return significand >> u32(-exponent);
    }
    return significand << u32(exponent);
}

fn f64_to_i64(x: f64) -> i64 {
    let magnitude = f64_to_u64(abs(x));
    if magnitude >= (1lu << 63u) {
        return select(~(1li << 63u), 1li << 63u, x < 0.0lf);
    }
    return select(i64(magnitude), -i64(magnitude), x < 0.0lf);
}

fn f64_to_u32(x: f64) -> u32 {
    return u32(min(f64_to_u64(x), 0xfffffffflu));
}

fn f64_to_i32(x: f64) -> i32 {
    let magnitude = f64_to_u64(abs(x));
    if x < 0.0lf {
        return bitcast<i32>(0u - u32(min(magnitude, 0x80000000lu)));
    }
    return i32(u32(min(magnitude, 0x7ffffffflu)));
}
