// log(1 + exp(x)) without overflow.
fn softplus_f32(x: f32) -> f32 {
    if is_nan_f32(x) {
        return x;
    }
    return max(x, 0.0) + log1p_f32(exp_f32(-abs(x)));
}
