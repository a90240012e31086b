// log(exp(a) + exp(b)) without overflow, with infinities and NaN as in `log_sum_exp`.
fn log_sum_exp_f64(a: f64, b: f64) -> f64 {
    if is_nan_f64(a) {
        return a;
    }
    if is_nan_f64(b) {
        return b;
    }
    let larger = max(a, b);
    if is_inf_f64(a) || is_inf_f64(b) {
        return select(larger, nan_like_f64(a), a == b && larger > 0.0);
    }
    return larger + log1p_f64(exp_f64(-abs(a - b)));
}
