// The error function of float64, its complement, and their inverses by Newton's method. erf and
// erfc are good to 2 ulp. After FreeBSD's msun: Copyright (C) 1993 by Sun Microsystems, Inc. All
// rights reserved. Permission to use, copy, modify, and distribute this software is freely granted,
// provided that this notice is preserved.

// erf(x) / x - 1 for |x| < 0.84375, z = x^2.
fn erf_tail_f64(z: f64) -> f64 {
    var top = -2.3763016656650163e-05lf;
    top = top * z - 0.005770270296489442;
    top = top * z - 0.02848174957559851;
    top = top * z - 0.3250421072470015;
    top = top * z + 0.12837916709551256;
    var bottom = -3.960228278775368e-06lf;
    bottom = bottom * z + 0.00013249473800432164;
    bottom = bottom * z + 0.005081306281875766;
    bottom = bottom * z + 0.0650222499887673;
    bottom = bottom * z + 0.39791722395915535;
    bottom = bottom * z + 1.0;
    return top / bottom;
}

// erfc(x) for 0.84375 <= x < 1.25.
fn erfc_middle_f64(x: f64) -> f64 {
    let s = x - 1.0;
    var top = -0.002166375594868791lf;
    top = top * s + 0.035478304325618236;
    top = top * s - 0.11089469428239668;
    top = top * s + 0.31834661990116175;
    top = top * s - 0.3722078760357013;
    top = top * s + 0.41485611868374833;
    top = top * s - 0.0023621185607526594;
    var bottom = 0.011984499846799107lf;
    bottom = bottom * s + 0.01363708391202905;
    bottom = bottom * s + 0.12617121980876164;
    bottom = bottom * s + 0.07182865441419627;
    bottom = bottom * s + 0.540397917702171;
    bottom = bottom * s + 0.10642088040084423;
    bottom = bottom * s + 1.0;
    return (1.0 - 0.8450629115104675) - top / bottom;
}

// log(x erfc(x)) + x^2 + 0.5625 for x >= 1.25.
fn erfc_exponent_f64(x: f64) -> f64 {
    let s = 1.0 / (x * x);
    if x < 2.857142857142857 {
        var top = -9.814329344169145lf;
        top = top * s - 81.2874355063066;
        top = top * s - 184.60509290671104;
        top = top * s - 162.39666946257347;
        top = top * s - 62.375332450326006;
        top = top * s - 10.558626225323291;
        top = top * s - 0.6938585727071818;
        top = top * s - 0.009864944034847148;
        var bottom = -0.0604244152148581lf;
        bottom = bottom * s + 6.570249770319282;
        bottom = bottom * s + 108.63500554177944;
        bottom = bottom * s + 429.00814002756783;
        bottom = bottom * s + 645.3872717332679;
        bottom = bottom * s + 434.56587747522923;
        bottom = bottom * s + 137.65775414351904;
        bottom = bottom * s + 19.651271667439257;
        bottom = bottom * s + 1.0;
        return top / bottom;
    }
    var top = -483.5191916086514lf;
    top = top * s - 1025.0951316110772;
    top = top * s - 637.5664433683896;
    top = top * s - 160.63638485582192;
    top = top * s - 17.757954917754752;
    top = top * s - 0.799283237680523;
    top = top * s - 0.0098649429247001;
    var bottom = -22.44095244658582lf;
    bottom = bottom * s + 474.52854120695537;
    bottom = bottom * s + 2553.0504064331644;
    bottom = bottom * s + 3199.8582195085955;
    bottom = bottom * s + 1536.729586084437;
    bottom = bottom * s + 325.7925129965739;
    bottom = bottom * s + 30.33806074348246;
    bottom = bottom * s + 1.0;
    return top / bottom;
}

// erfc(x) for x >= 0.84375.
fn erfc_tail_f64(x: f64) -> f64 {
    if x < 1.25 {
        return erfc_middle_f64(x);
    }
    if x > 28.0 {
        return 0.0lf;
    }
    // x^2 as an exact square and a small rest.
    let high = high_bits_f64(x);
    return exp_f64(-high * high - 0.5625) * exp_f64((high - x) * (high + x)
        + erfc_exponent_f64(x)) / x;
}

fn erf_f64(x: f64) -> f64 {
    if is_nan_f64(x) {
        return x;
    }
    let a = abs(x);
    if a < 0.84375 {
        return x + x * erf_tail_f64(x * x);
    }
    return copy_sign_f64(1.0 - erfc_tail_f64(a), x);
}

fn erfc_f64(x: f64) -> f64 {
    if is_nan_f64(x) {
        return x;
    }
    let a = abs(x);
    if a < 0.84375 {
        let tail = x * erf_tail_f64(x * x);
        return select(0.5 - ((x - 0.5) + tail), 1.0 - (x + tail), x < 0.25);
    }
    let tail = erfc_tail_f64(a);
    return select(tail, 2.0 - tail, x < 0.0);
}

// log(erfc(x)) for x >= 0, which does not underflow.
fn log_erfc_f64(x: f64) -> f64 {
    if x < 1.25 {
        return log_f64(erfc_f64(x));
    }
    return (erfc_exponent_f64(x) - log_f64(x)) - (x * x + 0.5625);
}

// x with erfc(x) = q, for 0 < q <= 1/2.
fn erfc_inverse_f64(q: f64) -> f64 {
    // Winitzki's approximation is good to 2e-3; Newton's method on the logarithm squares the error.
    let l = log_f64(q * (2.0 - q));
    let a = 4.330746750799873 + 0.5 * l;
    var x = sqrt(sqrt(a * a - l * 6.802721088435375) - a);
    let log_q = log_f64(q);
    for (var k = 0u; k < rounds(4u); k += 1u) {
        let log_x = log_erfc_f64(x);
        let slope = 1.1283791670955126 * exp_f64(-x * x - log_x);
        x += (log_x - log_q) / slope;
    }
    return x;
}

// erfinv for |x| <= 1/2.
fn erf_inverse_small_f64(x: f64) -> f64 {
    let z = x * x;
    var s = 0.0732990798lf;
    s = s * z + 0.0976636196;
    s = s * z + 0.1439317308;
    s = s * z + 0.2617993878;
    var y = 0.886226925452758 * (x + x * z * s);
    // Halley's method cubes the error of 1e-4.
    for (var k = 0u; k < rounds(2u); k += 1u) {
        let step = (erf_f64(y) - x) / (1.1283791670955126 * exp_f64(-y * y));
        y -= step / (1.0 + y * step);
    }
    return y;
}

fn erfinv_f64(x: f64) -> f64 {
    let a = abs(x);
    if is_nan_f64(x) || a > 1.0 {
        return nan_like_f64(x);
    }
    if a == 1.0 {
        return infinity_like_f64(x);
    }
    if a <= 0.5 {
        return erf_inverse_small_f64(x);
    }
    return copy_sign_f64(erfc_inverse_f64(1.0 - a), x);
}

// The quantile of the normal distribution.
fn ndtri_f64(p: f64) -> f64 {
    if is_nan_f64(p) || p < 0.0 || p > 1.0 {
        return nan_like_f64(p);
    }
    if p == 0.0 || p == 1.0 {
        return infinity_like_f64(p - 0.5);
    }
    if abs(p - 0.5) <= 0.25 {
        return 1.4142135623730951 * erf_inverse_small_f64(2.0 * (p - 0.5));
    }
    return copy_sign_f64(1.4142135623730951 * erfc_inverse_f64(2.0 * min(p, 1.0 - p)), p - 0.5);
}
