// The error function, its complement and their inverses. Polynomials are relative minimax fits of
// our own, except for erfinv, which is Giles' approximation (2010), good to 6 ulp; erf and erfc are
// good to 4 ulp.

// erfc(x) for x >= 0.45: exp(-x^2) / (1 + 2x) times a polynomial in (x - 2) / (x + 2).
fn erfc_tail_f32(x: f32) -> f32 {
    if x > 10.1 {
        return 0.0;
    }
    let q = (x - 2.0) / (x + 2.0);
    var s = 9.811609956e-05;
    s = s * q + 1.944657204e-04;
    s = s * q - 4.227818476e-04;
    s = s * q - 1.449967148e-03;
    s = s * q + 1.262202193e-03;
    s = s * q + 8.721063198e-03;
    s = s * q - 8.032725966e-03;
    s = s * q - 5.421984084e-02;
    s = s * q + 1.640512019e-01;
    s = s * q - 1.660304034e-01;
    s = s * q - 9.276382523e-02;
    s = s * q + 1.276978382e+00;
    // x^2 as an exact square of 12 bits and a small rest.
    let high = bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
    return exp_f32(-high * high) * exp_f32((high - x) * (high + x)) * (s / (1.0 + 2.0 * x));
}

fn erf_small_f32(x: f32) -> f32 {
    let z = x * x;
    var s = -9.641517252e-06;
    s = s * z + 1.125694831e-04;
    s = s * z - 8.482828899e-04;
    s = s * z + 5.220945436e-03;
    s = s * z - 2.686540004e-02;
    s = s * z + 1.128378197e-01;
    s = s * z - 3.761263843e-01;
    s = s * z + 1.283791671e-01;
    // Below this bound, x * s may be subnormal.
    return select(x + x * s, 1.12837917 * x, abs(x) < 1e-30);
}

fn erf_f32(x: f32) -> f32 {
    if is_nan_f32(x) {
        return x;
    }
    let a = abs(x);
    if a < 1.0 {
        return erf_small_f32(x);
    }
    return copy_sign_f32(1.0 - erfc_tail_f32(a), x);
}

fn erfc_f32(x: f32) -> f32 {
    if is_nan_f32(x) {
        return x;
    }
    let a = abs(x);
    if a < 0.5 {
        return 1.0 - erf_small_f32(x);
    }
    let tail = erfc_tail_f32(a);
    return select(tail, 2.0 - tail, x < 0.0);
}

fn erfinv_f32(x: f32) -> f32 {
    let a = abs(x);
    if is_nan_f32(x) || a > 1.0 {
        return nan_like_f32(x);
    }
    if a == 1.0 {
        return infinity_like_f32(x);
    }
    let w = -log_f32((1.0 - x) * (1.0 + x));
    if w < 5.0 {
        let t = w - 2.5;
        var s = 2.81022636e-08;
        s = s * t + 3.43273939e-07;
        s = s * t - 3.5233877e-06;
        s = s * t - 4.39150654e-06;
        s = s * t + 0.00021858087;
        s = s * t - 0.00125372503;
        s = s * t - 0.00417768164;
        s = s * t + 0.246640727;
        s = s * t + 1.50140941;
        return s * x;
    }
    let t = sqrt(w) - 3.0;
    var s = -0.000200214257;
    s = s * t + 0.000100950558;
    s = s * t + 0.00134934322;
    s = s * t - 0.00367342844;
    s = s * t + 0.00573950773;
    s = s * t - 0.0076224613;
    s = s * t + 0.00943887047;
    s = s * t + 1.00167406;
    s = s * t + 2.83297682;
    return s * x;
}

// The quantile of the normal distribution.
fn ndtri_f32(p: f32) -> f32 {
    if is_nan_f32(p) || p < 0.0 || p > 1.0 {
        return nan_like_f32(p);
    }
    if p == 0.0 || p == 1.0 {
        return infinity_like_f32(p - 0.5);
    }
    let y = p - 0.5;
    if abs(y) <= 0.3 {
        let z = y * y;
        var s = 1.746162208e+03;
        s = s * z - 4.524564533e+01;
        s = s * z + 6.051673743e+01;
        s = s * z + 1.520968301e+01;
        s = s * z + 5.779785258e+00;
        s = s * z + 2.624892417e+00;
        s = s * z + 2.506628315e+00;
        return y * s;
    }
    let r = sqrt(-2.0 * log_f32(min(p, 1.0 - p)));
    if r < 4.0 {
        let t = 1.0 / r - 0.419;
        var s = -9.481016153e+00;
        s = s * t + 5.535747705e+00;
        s = s * t - 2.551106889e+00;
        s = s * t + 1.573834843e+00;
        s = s * t - 1.108389725e+00;
        s = s * t + 8.852405391e-01;
        s = s * t - 8.491811527e-01;
        s = s * t + 1.100327482e+00;
        s = s * t + 8.144977109e-01;
        return copy_sign_f32(r - s, y);
    }
    let t = 1.0 / r - 0.162;
    var s = -9.137507218e+03;
    s = s * t + 2.029936792e+03;
    s = s * t - 2.889658423e+02;
    s = s * t + 6.930372976e+01;
    s = s * t - 1.975636438e+01;
    s = s * t + 6.280987512e+00;
    s = s * t - 2.681213257e+00;
    s = s * t + 1.858894454e+00;
    s = s * t + 4.526107411e-01;
    return copy_sign_f32(r - s, y);
}
