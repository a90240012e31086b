// Dawson's integral, the exponential integral Ei, Fresnel's integrals and Spence's function. The
// polynomials are fits of our own at Chebyshev nodes, in t from -1 to 1. Errors are relative, but
// for Ei near its zero at 0.3725.

fn dawsn_small_f32(v: f32) -> f32 {
    let t = v * 0.5 - 1.0;
    var s = 1.23109302e-05;
    s = s * t - 6.57328118e-05;
    s = s * t + 2.87895351e-04;
    s = s * t - 1.2410085e-03;
    s = s * t + 4.76638123e-03;
    s = s * t - 1.58937412e-02;
    s = s * t + 4.5294585e-02;
    s = s * t - 1.07479302e-1;
    s = s * t + 2.04979887e-1;
    s = s * t - 2.99985116e-1;
    s = s * t + 3.19994037e-1;
    return s;
}

fn dawsn_middle_f32(v: f32) -> f32 {
    let t = v * 1.33333333 - 3.66666667;
    var s = -2.72447303e-06;
    s = s * t + 8.14676963e-06;
    s = s * t + 4.44232971e-06;
    s = s * t - 8.40851656e-05;
    s = s * t + 2.64701048e-04;
    s = s * t - 3.76801615e-04;
    s = s * t - 2.61528058e-04;
    s = s * t + 2.97017277e-03;
    s = s * t - 9.72913118e-03;
    s = s * t + 2.51126111e-02;
    s = s * t - 6.61351576e-02;
    s = s * t + 1.97850947e-1;
    return s;
}

fn dawsn_wide_f32(v: f32) -> f32 {
    let t = v * 0.8 - 3.8;
    var s = 2.20564973e-06;
    s = s * t - 6.14900754e-06;
    s = s * t + 1.02106842e-05;
    s = s * t - 2.61531038e-05;
    s = s * t + 7.93718365e-05;
    s = s * t - 2.39055656e-04;
    s = s * t + 7.53321989e-04;
    s = s * t - 2.48139158e-03;
    s = s * t + 8.46551971e-03;
    s = s * t - 2.97867021e-02;
    s = s * t + 1.07771511e-1;
    return s;
}

fn dawsn_large_f32(v: f32) -> f32 {
    let t = v * 2.0 - 1.0;
    var s = 1.7314127e-07;
    s = s * t + 3.10631245e-06;
    s = s * t + 8.06914146e-05;
    s = s * t + 3.6249598e-03;
    s = s * t + 5.03547202e-1;
    return s;
}

fn expint_small_f32(v: f32) -> f32 {
    let t = v * 1.0 - 1.0;
    var s = 7.02778797e-06;
    s = s * t + 6.29063975e-05;
    s = s * t + 4.87829645e-04;
    s = s * t + 3.38232076e-03;
    s = s * t + 2.00933452e-02;
    s = s * t + 9.9620499e-02;
    s = s * t + 4.00379675e-1;
    s = s * t + 1.31790215;
    return s;
}

fn expint_2_f32(v: f32) -> f32 {
    let t = v * 1.0 - 3.0;
    var s = -8.40332615e-06;
    s = s * t + 3.31329828e-05;
    s = s * t - 8.9590085e-05;
    s = s * t + 1.29852235e-04;
    s = s * t + 8.34968791e-04;
    s = s * t - 8.26014652e-03;
    s = s * t + 3.70371389e-02;
    s = s * t - 8.60453251e-02;
    s = s * t + 1.08471922e-02;
    s = s * t + 1.48372921;
    return s;
}

fn expint_4_f32(v: f32) -> f32 {
    let t = v * 0.5 - 3.0;
    var s = 2.9282222e-06;
    s = s * t - 6.50180143e-05;
    s = s * t + 3.74491759e-04;
    s = s * t - 1.37750284e-03;
    s = s * t + 3.65273675e-03;
    s = s * t - 5.92487723e-03;
    s = s * t - 7.37059932e-04;
    s = s * t + 3.85115349e-02;
    s = s * t - 1.31473117e-1;
    s = s * t + 1.27888387;
    return s;
}

fn expint_8_f32(v: f32) -> f32 {
    let t = v * 0.25 - 3.0;
    var s = -1.88650327e-05;
    s = s * t + 3.86325885e-05;
    s = s * t - 4.66281213e-06;
    s = s * t - 1.02242643e-04;
    s = s * t + 4.45922838e-04;
    s = s * t - 1.46491706e-03;
    s = s * t + 3.86932525e-03;
    s = s * t - 8.98306421e-03;
    s = s * t + 1.98302167e-02;
    s = s * t - 4.42399212e-02;
    s = s * t + 1.10297455;
    return s;
}

fn expint_16_f32(v: f32) -> f32 {
    let t = v * 4.0 - 3.0;
    var s = 1.39350422e-06;
    s = s * t + 9.05249704e-06;
    s = s * t + 6.53768666e-05;
    s = s * t + 8.27749145e-04;
    s = s * t + 1.93989375e-02;
    s = s * t + 1.05204247;
    return s;
}

fn expint_large_f32(v: f32) -> f32 {
    let t = v * 2.0 - 1.0;
    var s = 2.23917703e-06;
    s = s * t + 3.02557774e-05;
    s = s * t + 5.66817768e-04;
    s = s * t + 1.66765127e-02;
    s = s * t + 1.01613772;
    return s;
}

fn fresnel_c_f32(v: f32) -> f32 {
    let t = v * 0.305175781 - 1.0;
    var s = -7.03988022e-07;
    s = s * t + 1.78069985e-05;
    s = s * t - 3.3077521e-04;
    s = s * t + 4.28779168e-03;
    s = s * t - 3.56266469e-02;
    s = s * t + 1.66443065e-1;
    s = s * t - 3.49835098e-1;
    s = s * t + 4.43458112e-1;
    return s;
}

fn fresnel_s_f32(v: f32) -> f32 {
    let t = v * 0.305175781 - 1.0;
    var s = 2.06161503e-06;
    s = s * t - 4.52928459e-05;
    s = s * t + 7.14229654e-04;
    s = s * t - 7.62921678e-03;
    s = s * t + 5.01329531e-02;
    s = s * t - 1.76135658e-1;
    s = s * t + 2.88939363e-1;
    return s;
}

fn fresnel_f_middle_f32(v: f32) -> f32 {
    let t = v * 1.42857143 - 3.28571429;
    var s = -9.37154941e-06;
    s = s * t + 4.68839595e-05;
    s = s * t - 1.67816215e-04;
    s = s * t + 5.44359724e-04;
    s = s * t - 1.53440652e-03;
    s = s * t + 3.67486444e-03;
    s = s * t - 7.25547489e-03;
    s = s * t + 1.08954247e-02;
    s = s * t + 9.90200497e-1;
    return s;
}

fn fresnel_g_middle_f32(v: f32) -> f32 {
    let t = v * 1.42857143 - 3.28571429;
    var s = -1.21818007e-05;
    s = s * t + 3.15276052e-05;
    s = s * t - 1.35321992e-05;
    s = s * t - 1.79621825e-04;
    s = s * t + 1.11934416e-03;
    s = s * t - 4.37177673e-03;
    s = s * t + 1.28187324e-02;
    s = s * t - 2.89628649e-02;
    s = s * t + 4.76787802e-02;
    s = s * t + 9.54401111e-1;
    return s;
}

fn fresnel_f_f32(v: f32) -> f32 {
    let t = v * 2.0 - 1.0;
    var s = 1.48508514e-07;
    s = s * t - 1.72660557e-06;
    s = s * t + 3.48607205e-05;
    s = s * t - 1.80078973e-03;
    s = s * t + 9.98162473e-1;
    return s;
}

fn fresnel_g_f32(v: f32) -> f32 {
    let t = v * 2.0 - 1.0;
    var s = -3.25287733e-07;
    s = s * t + 2.18484499e-06;
    s = s * t - 1.98330264e-05;
    s = s * t + 2.93282068e-04;
    s = s * t - 8.72507961e-03;
    s = s * t + 9.90959293e-1;
    return s;
}

fn spence_series_f32(v: f32) -> f32 {
    let t = v * 2.0 + 0.0;
    var s = 1.45793583e-05;
    s = s * t - 3.30299198e-05;
    s = s * t + 3.9946033e-05;
    s = s * t - 1.0695599e-04;
    s = s * t + 3.23443409e-04;
    s = s * t - 8.75054398e-04;
    s = s * t + 2.49888898e-03;
    s = s * t - 7.81120627e-03;
    s = s * t + 2.77778755e-02;
    s = s * t - 1.25000066e-1;
    s = s * t + 9.99999999e-1;
    return s;
}

fn dawsn_f32(x: f32) -> f32 {
    if is_nan_f32(x) {
        return x;
    }
    let a = abs(x);
    var y: f32;
    if a <= 2.0 {
        return x * dawsn_small_f32(a * a);
    } else if a <= 3.5 {
        y = dawsn_middle_f32(a);
    } else if a <= 6.0 {
        y = dawsn_wide_f32(a);
    } else if is_inf_f32(x) {
        y = 0.0;
    } else {
        let w = 6.0 / a;
        y = dawsn_large_f32(w * w) / a;
    }
    return copy_sign_f32(y, x);
}

// NaN for x < 0 and for infinity, as in TensorFlow.
fn expint_f32(x: f32) -> f32 {
    if !(x >= 0.0) || is_inf_f32(x) {
        return nan_like_f32(x);
    }
    if x == 0.0 {
        return infinity_like_f32(-1.0);
    }
    if x <= 2.0 {
        return x * expint_small_f32(x) + (0.577215665 + log_f32(x));
    }
    var y: f32;
    if x <= 4.0 {
        y = expint_2_f32(x);
    } else if x <= 8.0 {
        y = expint_4_f32(x);
    } else if x <= 16.0 {
        y = expint_8_f32(x);
    } else if x <= 32.0 {
        y = expint_16_f32(16.0 / x);
    } else {
        y = expint_large_f32(32.0 / x);
        // The exponential alone may overflow, and y / x may be subnormal.
        let half = exp_f32(0.5 * x);
        return y * half / x * half;
    }
    return y / x * exp_f32(x);
}

// Sine and cosine of pi x^2 / 2 for 0 <= x < 1e7, where every quarter turn counts: x is cut in two,
// whose squares and product are exact.
fn square_turn_f32(x: f32) -> vec2<f32> {
    let high = bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
    let low = x - high;
    let main = high * high;
    let cross = 2.0 * high * low;
    let square = low * low;
    let a = main - 4.0 * floor(0.25 * main);
    let b = cross - 4.0 * floor(0.25 * cross);
    let d = square - 4.0 * floor(0.25 * square);
    // x^2 modulo 4 = quarter + rest; a quarter is pi / 2.
    let quarter = round(a + b + d);
    let rest = (a - quarter) + b + d;
    let angle = 1.57079633 * rest;
    let z = angle * angle;
    var s = 2.75573192e-06;
    s = s * z - 1.98412698e-04;
    s = s * z + 8.33333333e-03;
    s = s * z - 1.66666667e-1;
    s = s * z + 1.0;
    s = s * angle;
    var c = -2.75573192e-07;
    c = c * z + 2.48015873e-05;
    c = c * z - 1.38888889e-03;
    c = c * z + 4.16666667e-02;
    c = c * z - 5.0e-1;
    c = c * z + 1.0;
    switch u32(quarter) & 3u {
        case 0u: { return vec2<f32>(s, c); }
        case 1u: { return vec2<f32>(c, -s); }
        case 2u: { return vec2<f32>(-s, -c); }
        default: { return vec2<f32>(-c, s); }
    }
}

// The cosine and the sine integral of x >= 0.
fn fresnel_f32(x: f32) -> vec2<f32> {
    let z = x * x * x * x;
    if x < 1.6 {
        return vec2<f32>(x * fresnel_c_f32(z), x * x * x * fresnel_s_f32(z));
    }
    if x >= 1e7 {
        return vec2<f32>(0.5, 0.5);
    }
    var f: f32;
    var g: f32;
    if x < 3.0 {
        f = fresnel_f_middle_f32(x);
        g = fresnel_g_middle_f32(x);
    } else {
        let w = 3.0 / x;
        let v = w * w * w * w;
        f = fresnel_f_f32(v);
        g = fresnel_g_f32(v);
    }
    f = f / (3.14159265 * x);
    let h = 3.14159265 * x;
    g = g / (h * h * x);
    let turn = square_turn_f32(x);
    return vec2<f32>(0.5 + (f * turn.x - g * turn.y), 0.5 - (f * turn.y + g * turn.x));
}

fn fresnel_cos_f32(x: f32) -> f32 {
    if is_nan_f32(x) {
        return x;
    }
    return copy_sign_f32(fresnel_f32(abs(x)).x, x);
}

fn fresnel_sin_f32(x: f32) -> f32 {
    if is_nan_f32(x) {
        return x;
    }
    return copy_sign_f32(fresnel_f32(abs(x)).y, x);
}

// The dilogarithm of 1 - x. NaN for x < 0 and for infinity, as in TensorFlow.
fn spence_f32(x: f32) -> f32 {
    if !(x >= 0.0) || is_inf_f32(x) {
        return nan_like_f32(x);
    }
    if x == 0.0 {
        return 1.64493407;
    }
    // Inversion, then reflection, until the argument is between 1 / 2 and 3 / 2.
    var z = x;
    let l = log_f32(x);
    if x > 1.5 {
        z = 1.0 / x;
    }
    var y: f32;
    if z < 0.5 {
        // The logarithm of z, which may be subnormal.
        let log_z = select(l, -l, x > 1.5);
        y = 1.64493407 - log_z * log1p_f32(-z) - z * spence_series_f32(-z);
    } else {
        // 1 - z without the error of 1 / x.
        let w = select(1.0 - z, (x - 1.0) / x, x > 1.5);
        y = w * spence_series_f32(-w);
    }
    if x > 1.5 {
        y = -0.5 * l * l - y;
    }
    return y;
}
