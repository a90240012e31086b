// The next float64 after `x` in the direction of `y`.
fn next_after_f64(x: f64, y: f64) -> f64 {
    if is_nan_f64(x) || is_nan_f64(y) {
        return nan_like_f64(x);
    }
    let a = bitcast<u64>(x);
    let b = bitcast<u64>(y);
    if a == b || ((a | b) & 0x7ffffffffffffffflu) == 0lu {
        return y;
    }
    if (a & 0x7ffffffffffffffflu) == 0lu {
        return bitcast<f64>((b & 0x8000000000000000lu) | 1lu);
    }
    // Floats of one sign are ordered as their bits; `up` in magnitude.
    let a_key = select(a | 0x8000000000000000lu, ~a, (a >> 63u) != 0lu);
    let b_key = select(b | 0x8000000000000000lu, ~b, (b >> 63u) != 0lu);
    let grows = (a_key < b_key) == ((a >> 63u) == 0lu);
    return bitcast<f64>(select(a - 1lu, a + 1lu, grows));
}
