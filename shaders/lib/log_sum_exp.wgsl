// log(exp(a) + exp(b)) without overflow: the larger plus log(1 + exp(-distance)). Infinities win as
// they are, except that two positive ones give NaN, as in TensorFlow; NaN propagates.
fn log_sum_exp_f32(a: f32, b: f32) -> f32 {
    if (bitcast<u32>(a) & 0x7fffffffu) > 0x7f800000u {
        return a;
    }
    if (bitcast<u32>(b) & 0x7fffffffu) > 0x7f800000u {
        return b;
    }
    let larger = max(a, b);
    // Beyond float32's precision the smaller adds nothing; the comparison is false for two equal
    // infinities, too.
    let distance = abs(a - b);
    if distance < 20.0 {
        return larger + log(1.0 + exp(-distance));
    }
    if a == b && larger > 0.0 {
        return a - b;
    }
    return larger;
}
