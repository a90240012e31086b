// log(1 + exp(x)) without overflow.
fn softplus_f64(x: f64) -> f64 {
    if is_nan_f64(x) {
        return x;
    }
    return max(x, 0.0) + log1p_f64(exp_f64(-abs(x)));
}
