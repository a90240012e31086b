// log|gamma(x)| of float64 and its derivative, within 4 ulp for x > 0 and, near the zeros, an
// absolute error of some 1e-15. After FreeBSD's msun: Copyright (C) 1993 by Sun Microsystems, Inc.
// All rights reserved. Permission to use, copy, modify, and distribute this software is freely
// granted, provided that this notice is preserved.

// lgamma(2 - y) for |y| <= 0.27.
fn lgamma_below_two_f64(y: f64) -> f64 {
    let z = y * y;
    var even = 2.5214456545125733e-05lf;
    even = even * z + 0.00022086279071390839;
    even = even * z + 0.0011927076318336207;
    even = even * z + 0.007385550860814029;
    even = even * z + 0.06735230105312927;
    even = even * z + 0.07721566490153287;
    var odd = 4.4864094961891516e-05lf;
    odd = odd * z + 0.00010801156724758394;
    odd = odd * z + 0.0005100697921535113;
    odd = odd * z + 0.0028905138367341563;
    odd = odd * z + 0.020580808432516733;
    odd = odd * z + 0.3224670334241136;
    return (y * even + z * odd) - 0.5 * y;
}

// lgamma near its minimum, y being the distance to it.
fn lgamma_minimum_f64(y: f64) -> f64 {
    let z = y * y;
    let w = z * y;
    var a = 0.00031563207090362595lf;
    a = a * w - 0.0014034646998923284;
    a = a * w + 0.006100538702462913;
    a = a * w - 0.032788541075985965;
    a = a * w + 0.48383612272381005;
    var b = -0.00031275416837512086lf;
    b = b * w + 0.000881081882437654;
    b = b * w - 0.0036845201678113826;
    b = b * w + 0.01797067508118204;
    b = b * w - 0.1475877229945939;
    var c = 0.0003355291926355191lf;
    c = c * w - 0.0005385953053567405;
    c = c * w + 0.0022596478090061247;
    c = c * w - 0.010314224129834144;
    c = c * w + 0.06462494023913339;
    return -0.12148629053584961 + (z * a - (-3.638676997039505e-18 - w * (b + y * c)));
}

// lgamma(1 + y) for -0.1 <= y <= 0.24.
fn lgamma_above_one_f64(y: f64) -> f64 {
    var top = 0.013381091853678766lf;
    top = top * y + 0.22896372806469245;
    top = top * y + 0.9777175279633727;
    top = top * y + 1.4549225013723477;
    top = top * y + 0.6328270640250934;
    top = top * y - 0.07721566490153287;
    var bottom = 0.003217092422824239lf;
    bottom = bottom * y + 0.10422264559336913;
    bottom = bottom * y + 0.7692851504566728;
    bottom = bottom * y + 2.128489763798934;
    bottom = bottom * y + 2.4559779371304113;
    bottom = bottom * y + 1.0;
    return y * top / bottom - 0.5 * y;
}

fn lgamma_positive_f64(x: f64) -> f64 {
    if x == 1.0 || x == 2.0 {
        return 0.0lf;
    }
    if x < 1e-20 {
        return -log_f64(x);
    }
    if x <= 0.9 {
        let rest = -log_f64(x);
        if x >= 0.7316 {
            return rest + lgamma_below_two_f64(1.0 - x);
        }
        if x >= 0.23164 {
            return rest + lgamma_minimum_f64(x - 0.46163214496836225);
        }
        return rest + lgamma_above_one_f64(x);
    }
    if x < 2.0 {
        if x >= 1.7316 {
            return lgamma_below_two_f64(2.0 - x);
        }
        if x >= 1.23164 {
            return lgamma_minimum_f64(x - 1.4616321449683622);
        }
        return lgamma_above_one_f64(x - 1.0);
    }
    if x < 8.0 {
        // lgamma(2 + y), and a product for the steps above.
        let whole = floor(x);
        let y = x - whole;
        var product = 1.0lf;
        for (var k = 2.0lf; k < whole; k += 1.0) {
            product *= y + k;
        }
        var top = 3.194753265841009e-05lf;
        top = top * y + 0.0018402845140733772;
        top = top * y + 0.02664227030336386;
        top = top * y + 0.14635047265246445;
        top = top * y + 0.325778796408931;
        top = top * y + 0.21498241596060885;
        top = top * y - 0.07721566490153287;
        var bottom = 7.326684307446256e-06lf;
        bottom = bottom * y + 0.0007779424963818936;
        bottom = bottom * y + 0.01864591917156529;
        bottom = bottom * y + 0.17193386563280308;
        bottom = bottom * y + 0.7219355475671381;
        bottom = bottom * y + 1.3920053346762105;
        bottom = bottom * y + 1.0;
        return (0.5 * y + y * top / bottom) + log_f64(product);
    }
    if x > 1e17 {
        return x * (log_f64(x) - 1.0);
    }
    // Stirling.
    let z = 1.0 / x;
    let s = z * z;
    var w = -0.0016309293409657527lf;
    w = w * s + 0.0008363399189962821;
    w = w * s - 0.00059518755745034;
    w = w * s + 0.0007936505586430196;
    w = w * s - 0.0027777777772877554;
    w = w * s + 0.08333333333333297;
    return (x - 0.5) * (log_f64(x) - 1.0) + (0.4189385332046727 + z * w);
}

// sin(pi f) and cos(pi f) for 0 <= f <= 1/2.
fn sin_cos_pi_f64(f: f64) -> vec2<f64> {
    if f <= 0.25 {
        let t = 3.141592653589793 * f;
        return vec2(sin_small_f64(t, 0.0lf), cos_small_f64(t, 0.0lf));
    }
    let t = 3.141592653589793 * (0.5 - f);
    return vec2(cos_small_f64(t, 0.0lf), sin_small_f64(t, 0.0lf));
}

fn lgamma_f64(x: f64) -> f64 {
    if is_nan_f64(x) {
        return x;
    }
    if is_inf_f64(x) {
        return infinity_like_f64(1.0lf);
    }
    if x > 0.0 {
        return lgamma_positive_f64(x);
    }
    let a = -x;
    let f = abs(a - round_f64(a));
    if f == 0.0 {
        return infinity_like_f64(1.0lf);
    }
    if a < 1e-20 {
        return -log_f64(a);
    }
    return log_f64(3.141592653589793 / (a * sin_cos_pi_f64(f).x)) - lgamma_positive_f64(a);
}

fn digamma_positive_f64(x: f64) -> f64 {
    var z = x;
    var sum = 0.0lf;
    for (var k = 0u; k < 12u && z < 12.0; k += 1u) {
        sum -= 1.0 / z;
        z += 1.0;
    }
    let r = 1.0 / z;
    let s = r * r;
    let tail = 0.007575757575757576 - s * (0.021092796092796094 - s * 0.08333333333333333);
    let series = 0.08333333333333333 - s * (0.008333333333333333 - s * (0.003968253968253968 - s
        * (0.004166666666666667 - s * tail)));
    return sum + (log_f64(z) - 0.5 * r - s * series);
}

// -inf at 0, NaN at the negative integers, as in TensorFlow since 2.22; earlier versions give NaN
// at 0.
fn digamma_f64(x: f64) -> f64 {
    if is_nan_f64(x) || bitcast<u64>(x) == 0x7ff0000000000000lu {
        return x;
    }
    if x > 0.0 {
        return digamma_positive_f64(x);
    }
    if x == 0.0 {
        return infinity_like_f64(-1.0);
    }
    let f = x - round_f64(x);
    if is_inf_f64(x) || f == 0.0 {
        return nan_like_f64(x);
    }
    let circle = sin_cos_pi_f64(abs(f));
    return digamma_positive_f64(1.0 - x) - copy_sign_f64(3.141592653589793 * circle.y / circle.x,
        f);
}
