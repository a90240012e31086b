// WGSL's trunc and round of float64 by floor and ceil: on CPUs without AVX-512, llvmpipe rounds 1.5
// to 1 and returns values beyond 2^24 unchanged.

// `x` without its fraction; the sign stays, also that of zero.
fn trunc_f64(x: f64) -> f64 {
    return select(floor(x), ceil(x), x < 0.0lf);
}

// `x` rounded to an integer, ties to even; the sign stays, also that of zero.
fn round_f64(x: f64) -> f64 {
    let whole = trunc_f64(x);
    let rest = abs(x - whole);
    let is_odd = 2.0lf * floor(0.5lf * whole) != whole;
    let away = whole + select(1.0lf, -1.0lf, x < 0.0lf);
    return select(whole, away, rest > 0.5lf || (rest == 0.5lf && is_odd));
}
