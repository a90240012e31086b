// The next float32 after `x` in the direction of `y`.
fn next_after_f32(x: f32, y: f32) -> f32 {
    if is_nan_f32(x) || is_nan_f32(y) {
        return nan_like_f32(x);
    }
    let a = bitcast<u32>(x);
    let b = bitcast<u32>(y);
    if a == b || ((a | b) & 0x7fffffffu) == 0u {
        return y;
    }
    if (a & 0x7fffffffu) == 0u {
        return bitcast<f32>((b & 0x80000000u) | 1u);
    }
    // Floats of one sign are ordered as their bits; `up` in magnitude.
    let a_key = select(a | 0x80000000u, ~a, (a >> 31u) != 0u);
    let b_key = select(b | 0x80000000u, ~b, (b >> 31u) != 0u);
    let grows = (a_key < b_key) == ((a >> 31u) == 0u);
    return bitcast<f32>(select(a - 1u, a + 1u, grows));
}
