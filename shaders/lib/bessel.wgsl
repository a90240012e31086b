// The Bessel functions of order 0 and 1. The polynomials are fits of our own at Chebyshev nodes, in
// t from -1 to 1; those of p and q are Hankel's: J + iY = (p + iq / x) sqrt(2 / (pi x)) exp(i (x -
// phase)). Errors are relative, except for J and Y near their zeros, where they are relative to the
// amplitude.

fn j0_small_f32(v: f32) -> f32 {
    let t = v * 0.08 - 1.0;
    var s = 3.94116937e-06;
    s = s * t - 7.71884612e-05;
    s = s * t + 1.13435243e-03;
    s = s * t - 1.20349484e-02;
    s = s * t + 8.53918275e-02;
    s = s * t - 3.6018084e-1;
    s = s * t + 7.09416003e-1;
    s = s * t - 2.16505408e-1;
    s = s * t - 3.8474451e-1;
    return s;
}

fn j1_small_f32(v: f32) -> f32 {
    let t = v * 0.08 - 1.0;
    var s = 2.26935009e-07;
    s = s * t - 5.04672443e-06;
    s = s * t + 8.60539403e-05;
    s = s * t - 1.08897529e-03;
    s = s * t + 9.62817151e-03;
    s = s * t - 5.46507709e-02;
    s = s * t + 1.72886768e-1;
    s = s * t - 2.27013121e-1;
    s = s * t + 3.46408662e-02;
    return s;
}

fn y0_small_f32(v: f32) -> f32 {
    let t = v * 0.08 - 1.0;
    var s = 2.92152487e-07;
    s = s * t - 7.00983172e-06;
    s = s * t + 1.2994556e-04;
    s = s * t - 1.80278837e-03;
    s = s * t + 1.76353457e-02;
    s = s * t - 1.11516829e-1;
    s = s * t + 3.885164e-1;
    s = s * t - 4.70576365e-1;
    s = s * t - 4.32655822e-1;
    s = s * t + 4.83724858e-1;
    return s;
}

fn y1_small_f32(v: f32) -> f32 {
    let t = v * 0.08 - 1.0;
    var s = -4.12529122e-07;
    s = s * t + 8.76753771e-06;
    s = s * t - 1.4141735e-04;
    s = s * t + 1.66877729e-03;
    s = s * t - 1.34334341e-02;
    s = s * t + 6.63469607e-02;
    s = s * t - 1.63120204e-1;
    s = s * t + 9.10865078e-02;
    s = s * t + 1.3974939e-1;
    return s;
}

fn p0_f32(v: f32) -> f32 {
    let t = v * 2.0 - 1.0;
    var s = 3.15906047e-07;
    s = s * t - 2.52774685e-06;
    s = s * t + 3.4910205e-05;
    s = s * t - 1.32747581e-03;
    s = s * t + 9.98634766e-1;
    return s;
}

fn q0_f32(v: f32) -> f32 {
    let t = v * 2.0 - 1.0;
    var s = -5.7122429e-08;
    s = s * t + 2.16208524e-07;
    s = s * t - 9.33779536e-07;
    s = s * t + 6.22457663e-06;
    s = s * t - 6.33886506e-05;
    s = s * t + 1.31421584e-03;
    s = s * t - 1.23614963e-1;
    return s;
}

fn p1_f32(v: f32) -> f32 {
    let t = v * 2.0 - 1.0;
    var s = -3.67174819e-07;
    s = s * t + 3.05567269e-06;
    s = s * t - 4.57748629e-05;
    s = s * t + 2.24144354e-03;
    s = s * t + 1.00229065;
    return s;
}

fn q1_f32(v: f32) -> f32 {
    let t = v * 2.0 - 1.0;
    var s = -2.42934378e-07;
    s = s * t + 1.16705321e-06;
    s = s * t - 7.35394338e-06;
    s = s * t + 7.89469358e-05;
    s = s * t - 1.86485168e-03;
    s = s * t + 3.73047435e-1;
    return s;
}

fn i0e_small_f32(v: f32) -> f32 {
    let t = v * 0.5 - 1.0;
    var s = -4.67023479e-05;
    s = s * t + 1.62930732e-04;
    s = s * t - 3.77327453e-04;
    s = s * t + 1.10257776e-03;
    s = s * t - 3.14217301e-03;
    s = s * t + 7.73981768e-03;
    s = s * t - 1.71264378e-02;
    s = s * t + 3.4136642e-02;
    s = s * t - 6.04328134e-02;
    s = s * t + 9.41639698e-02;
    s = s * t - 1.28895516e-1;
    s = s * t + 1.57686697e-1;
    s = s * t - 1.86478069e-1;
    s = s * t + 3.08508324e-1;
    return s;
}

fn i0e_middle_f32(v: f32) -> f32 {
    let t = v * 0.333333333 - 2.33333333;
    var s = -7.63835005e-06;
    s = s * t + 1.83174181e-05;
    s = s * t - 2.13534076e-05;
    s = s * t + 4.9419599e-05;
    s = s * t - 1.35954898e-04;
    s = s * t + 3.11687747e-04;
    s = s * t - 7.18843267e-04;
    s = s * t + 1.73541838e-03;
    s = s * t - 4.3549755e-03;
    s = s * t + 1.15650413e-02;
    s = s * t - 3.43455263e-02;
    s = s * t + 1.53737743e-1;
    return s;
}

fn i0e_large_f32(v: f32) -> f32 {
    let t = v * 2.0 - 1.0;
    var s = 5.27229686e-07;
    s = s * t + 5.24600679e-06;
    s = s * t + 8.31042629e-05;
    s = s * t + 2.64586198e-03;
    s = s * t + 4.01509761e-1;
    return s;
}

fn i1e_small_f32(v: f32) -> f32 {
    let t = v * 0.5 - 1.0;
    var s = -7.48791866e-06;
    s = s * t + 2.82364294e-05;
    s = s * t - 7.53434774e-05;
    s = s * t + 2.43289522e-04;
    s = s * t - 7.57443623e-04;
    s = s * t + 2.09410262e-03;
    s = s * t - 5.27794378e-03;
    s = s * t + 1.21119358e-02;
    s = s * t - 2.50195461e-02;
    s = s * t + 4.60297055e-02;
    s = s * t - 7.44881238e-02;
    s = s * t + 1.0420194e-1;
    s = s * t - 1.22030256e-1;
    s = s * t + 1.07634645e-1;
    return s;
}

fn i1e_middle_f32(v: f32) -> f32 {
    let t = v * 0.333333333 - 2.33333333;
    var s = 5.09566365e-06;
    s = s * t - 1.1003024e-05;
    s = s * t + 7.86961869e-06;
    s = s * t - 1.16860169e-05;
    s = s * t + 2.44822301e-05;
    s = s * t - 7.83837587e-06;
    s = s * t - 1.06610035e-04;
    s = s * t + 5.38064401e-04;
    s = s * t - 2.03934335e-03;
    s = s * t + 7.20998883e-03;
    s = s * t - 2.66355734e-02;
    s = s * t + 1.42289236e-1;
    return s;
}

fn i1e_large_f32(v: f32) -> f32 {
    let t = v * 2.0 - 1.0;
    var s = -9.23233521e-08;
    s = s * t - 6.55717979e-07;
    s = s * t - 7.00791991e-06;
    s = s * t - 1.34791231e-04;
    s = s * t - 7.7309057e-03;
    s = s * t + 3.91339722e-1;
    return s;
}

fn i0_near_zero_f32(v: f32) -> f32 {
    let t = v * 0.5 - 1.0;
    var s = 2.35815184e-06;
    s = s * t + 1.19869234e-04;
    s = s * t + 3.92856482e-03;
    s = s * t + 7.35898502e-02;
    s = s * t + 6.35861728e-1;
    s = s * t + 1.56608293;
    return s;
}

fn i1_near_zero_f32(v: f32) -> f32 {
    let t = v * 0.5 - 1.0;
    var s = 1.94209199e-07;
    s = s * t + 1.17913321e-05;
    s = s * t + 4.79282725e-04;
    s = s * t + 1.1785694e-02;
    s = s * t + 1.47179737e-1;
    s = s * t + 6.35861728e-1;
    return s;
}

fn k0_small_f32(v: f32) -> f32 {
    let t = v * 0.5 - 1.0;
    var s = 6.09445241e-08;
    s = s * t + 4.05566573e-06;
    s = s * t + 1.82805551e-04;
    s = s * t + 5.05339206e-03;
    s = s * t + 7.17770103e-02;
    s = s * t + 3.40497321e-1;
    s = s * t - 3.03620773e-1;
    return s;
}

fn k1_small_f32(v: f32) -> f32 {
    let t = v * 0.5 - 1.0;
    var s = -7.08284042e-07;
    s = s * t - 3.89344983e-05;
    s = s * t - 1.38316874e-03;
    s = s * t - 2.78542273e-02;
    s = s * t - 2.43838529e-1;
    s = s * t - 3.32240956e-1;
    s = s * t + 8.85088288e-1;
    return s;
}

fn k0e_large_f32(v: f32) -> f32 {
    let t = v * 2.0 - 1.0;
    var s = -2.98271353e-06;
    s = s * t + 8.85380365e-06;
    s = s * t - 2.40883397e-05;
    s = s * t + 9.83178043e-05;
    s = s * t - 4.79956747e-04;
    s = s * t + 3.03314953e-03;
    s = s * t - 3.10714474e-02;
    s = s * t + 1.21859533;
    return s;
}

fn k1e_large_f32(v: f32) -> f32 {
    let t = v * 2.0 - 1.0;
    var s = 3.67429384e-06;
    s = s * t - 1.12062739e-05;
    s = s * t + 3.20737449e-05;
    s = s * t - 1.38086427e-04;
    s = s * t + 7.35947382e-04;
    s = s * t - 5.56704141e-03;
    s = s * t + 1.03349721e-1;
    s = s * t + 1.3631519;
    return s;
}

fn bessel_i0e_f32(x: f32) -> f32 {
    if is_nan_f32(x) {
        return x;
    }
    let a = abs(x);
    if a <= 4.0 {
        return i0e_small_f32(a);
    }
    if a <= 10.0 {
        return i0e_middle_f32(a);
    }
    if is_inf_f32(x) {
        return 0.0;
    }
    return i0e_large_f32(10.0 / a) / sqrt(a);
}

fn bessel_i1e_f32(x: f32) -> f32 {
    if is_nan_f32(x) {
        return x;
    }
    let a = abs(x);
    if a <= 4.0 {
        return x * i1e_small_f32(a);
    }
    if is_inf_f32(x) {
        return copy_sign_f32(0.0, x);
    }
    if a <= 10.0 {
        return copy_sign_f32(i1e_middle_f32(a), x);
    }
    return copy_sign_f32(i1e_large_f32(10.0 / a) / sqrt(a), x);
}

// scaled * exp(a), where the exponential alone may overflow.
fn unscale_f32(scaled: f32, a: f32) -> f32 {
    if a < 80.0 {
        return scaled * exp_f32(a);
    }
    let half = exp_f32(0.5 * a);
    return opaque_f32(scaled * half) * half;
}

// NaN at the infinities, as in TensorFlow.
fn bessel_i0_f32(x: f32) -> f32 {
    if !is_finite_f32(x) {
        return nan_like_f32(x);
    }
    return unscale_f32(bessel_i0e_f32(x), abs(x));
}

fn bessel_i1_f32(x: f32) -> f32 {
    if !is_finite_f32(x) {
        return nan_like_f32(x);
    }
    return unscale_f32(bessel_i1e_f32(x), abs(x));
}

// The logarithm of x / 2 for 0 < x <= 2. A half may be subnormal, which drivers may treat as zero.
fn log_of_half_f32(x: f32) -> f32 {
    let is_tiny = x < 1e-30;
    return log_f32(select(0.5 * x, x, is_tiny)) - select(0.0, 0.693147181, is_tiny);
}

// K of 0 < x <= 2.
fn k0_near_zero_f32(x: f32) -> f32 {
    let z = x * x;
    return k0_small_f32(z) - log_of_half_f32(x) * i0_near_zero_f32(z);
}

fn k1_near_zero_f32(x: f32) -> f32 {
    let z = x * x;
    return k1_small_f32(z) / x + log_of_half_f32(x) * (x * i1_near_zero_f32(z));
}

// Infinite for x <= 0, as in TensorFlow; so are the other functions of the second kind.
fn bessel_k0e_f32(x: f32) -> f32 {
    if is_nan_f32(x) {
        return x;
    }
    if x <= 0.0 {
        return infinity_like_f32(1.0);
    }
    if x <= 2.0 {
        return k0_near_zero_f32(x) * exp_f32(x);
    }
    return select(k0e_large_f32(2.0 / x) / sqrt(x), 0.0, is_inf_f32(x));
}

fn bessel_k0_f32(x: f32) -> f32 {
    if is_nan_f32(x) {
        return x;
    }
    if x <= 0.0 {
        return infinity_like_f32(1.0);
    }
    if x <= 2.0 {
        return k0_near_zero_f32(x);
    }
    return select(k0e_large_f32(2.0 / x) / sqrt(x) * exp_f32(-x), 0.0, is_inf_f32(x));
}

fn bessel_k1e_f32(x: f32) -> f32 {
    if is_nan_f32(x) {
        return x;
    }
    if x <= 0.0 {
        return infinity_like_f32(1.0);
    }
    if x <= 2.0 {
        return k1_near_zero_f32(x) * exp_f32(x);
    }
    return select(k1e_large_f32(2.0 / x) / sqrt(x), 0.0, is_inf_f32(x));
}

fn bessel_k1_f32(x: f32) -> f32 {
    if is_nan_f32(x) {
        return x;
    }
    if x <= 0.0 {
        return infinity_like_f32(1.0);
    }
    if x <= 2.0 {
        return k1_near_zero_f32(x);
    }
    return select(k1e_large_f32(2.0 / x) / sqrt(x) * exp_f32(-x), 0.0, is_inf_f32(x));
}

// cos x + sin x and sin x - cos x: sqrt(2) times cosine and sine of x - pi / 4.
fn circle_f32(x: f32) -> vec2<f32> {
    let s = sin_f32(x);
    let c = cos_f32(x);
    return vec2<f32>(c + s, s - c);
}

fn bessel_j0_f32(x: f32) -> f32 {
    if !is_finite_f32(x) {
        return nan_like_f32(x);
    }
    let a = abs(x);
    if a <= 5.0 {
        return j0_small_f32(a * a);
    }
    let w = 5.0 / a;
    let circle = circle_f32(a);
    return 0.564189584 / sqrt(a) * (p0_f32(w * w) * circle.x - q0_f32(w * w) / a * circle.y);
}

fn bessel_j1_f32(x: f32) -> f32 {
    if !is_finite_f32(x) {
        return nan_like_f32(x);
    }
    let a = abs(x);
    if a <= 5.0 {
        return x * j1_small_f32(a * a);
    }
    let w = 5.0 / a;
    let circle = circle_f32(a);
    let y = 0.564189584 / sqrt(a) * (p1_f32(w * w) * circle.y + q1_f32(w * w) / a * circle.x);
    return select(y, -y, x < 0.0);
}

fn bessel_y0_f32(x: f32) -> f32 {
    if is_nan_f32(x) {
        return x;
    }
    if x <= 0.0 {
        return infinity_like_f32(-1.0);
    }
    if is_inf_f32(x) {
        return nan_like_f32(x);
    }
    if x <= 5.0 {
        let z = x * x;
        return y0_small_f32(z) + 0.636619772 * log_f32(x) * j0_small_f32(z);
    }
    let w = 5.0 / x;
    let circle = circle_f32(x);
    return 0.564189584 / sqrt(x) * (p0_f32(w * w) * circle.y + q0_f32(w * w) / x * circle.x);
}

fn bessel_y1_f32(x: f32) -> f32 {
    if is_nan_f32(x) {
        return x;
    }
    if x <= 0.0 {
        return infinity_like_f32(-1.0);
    }
    if is_inf_f32(x) {
        return nan_like_f32(x);
    }
    if x <= 5.0 {
        let z = x * x;
        return x * y1_small_f32(z) + 0.636619772 * (log_f32(x) * (x * j1_small_f32(z)) - 1.0 / x);
    }
    let w = 5.0 / x;
    let circle = circle_f32(x);
    return 0.564189584 / sqrt(x) * (q1_f32(w * w) / x * circle.y - p1_f32(w * w) * circle.x);
}
