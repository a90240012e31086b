// asin, acos, atan and atan2 of float64 within 2 ulp. After FreeBSD's msun: Copyright (C) 1993 by
// Sun Microsystems, Inc. All rights reserved. Permission to use, copy, modify, and distribute this
// software is freely granted, provided that this notice is preserved.

fn atan_f64(x: f64) -> f64 {
    if is_nan_f64(x) {
        return x;
    }
    let a = abs(x);
    if a > 7e19 {
        return copy_sign_f64(1.5707963267948966lf, x);
    }
    // atan(a) = atan(b) + atan((a - b) / (1 + a b)) with b = 0, 1/2, 1, 3/2 or infinity.
    var t = a;
    var high = 0.0lf;
    var low = 0.0lf;
    if a >= 2.4375 {
        t = -1.0 / a;
        high = 1.5707963267948966lf;
        low = 6.123233995736766e-17lf;
    } else if a >= 1.1875 {
        t = (a - 1.5) / (1.0 + 1.5 * a);
        high = 0.982793723247329lf;
        low = 1.3903311031230998e-17lf;
    } else if a >= 0.6875 {
        t = (a - 1.0) / (a + 1.0);
        high = 0.7853981633974483lf;
        low = 3.061616997868383e-17lf;
    } else if a >= 0.4375 {
        t = (2.0 * a - 1.0) / (2.0 + a);
        high = 0.4636476090008061lf;
        low = 2.2698777452961687e-17lf;
    }
    let z = t * t;
    var s = 0.016285820115365782lf;
    s = s * z - 0.036531572744216916;
    s = s * z + 0.049768779946159324;
    s = s * z - 0.058335701337905735;
    s = s * z + 0.06661073137387531;
    s = s * z - 0.0769187620504483;
    s = s * z + 0.09090887133436507;
    s = s * z - 0.11111110405462356;
    s = s * z + 0.14285714272503466;
    s = s * z - 0.19999999999876483;
    s = s * z + 0.3333333333333293;
    return copy_sign_f64(high - ((t * (z * s) - low) - t), x);
}

fn atan2_f64(y: f64, x: f64) -> f64 {
    if is_nan_f64(x) || is_nan_f64(y) {
        return nan_like_f64(x);
    }
    var angle = 0.0lf;
    if is_inf_f64(x) && is_inf_f64(y) {
        angle = 0.7853981633974483lf;
    } else if y == 0.0 || is_inf_f64(x) {
        angle = 0.0lf;
    } else if x == 0.0 || is_inf_f64(y) {
        angle = 1.5707963267948966lf;
    } else {
        // Scaled, so that the quotient of extreme numbers neither overflows nor loses bits on the
        // way.
        let larger = max(abs(x), abs(y));
        let scale = select(select(1.0lf, 1.4916681462400413e-154lf, larger > 1e150),
            6.703903964971299e153lf, larger < 1e-150);
        angle = atan_f64(abs(y * scale) / abs(x * scale));
    }
    if is_negative_f64(x) {
        angle = 3.141592653589793 - (angle - 1.2246467991473532e-16);
    }
    return copy_sign_f64(angle, y);
}

// asin(s) / s - 1 with z = s * s <= 1/4.
fn asin_tail_f64(z: f64) -> f64 {
    var top = 3.479331075960212e-05lf;
    top = top * z + 0.0007915349942898145;
    top = top * z - 0.04005553450067941;
    top = top * z + 0.20121253213486293;
    top = top * z - 0.3255658186224009;
    top = top * z + 0.16666666666666666;
    var bottom = 0.07703815055590194lf;
    bottom = bottom * z - 0.6882839716054533;
    bottom = bottom * z + 2.0209457602335057;
    bottom = bottom * z - 2.403394911734414;
    bottom = bottom * z + 1.0;
    return z * top / bottom;
}

fn asin_f64(x: f64) -> f64 {
    let a = abs(x);
    if is_nan_f64(x) || a > 1.0 {
        return nan_like_f64(x);
    }
    if a < 0.5 {
        return x + x * asin_tail_f64(x * x);
    }
    let z = (1.0 - a) * 0.5;
    let s = sqrt(z);
    let tail = asin_tail_f64(z);
    if a > 0.975 {
        return copy_sign_f64(1.5707963267948966 - (2.0 * (s + s * tail) - 6.123233995736766e-17),
            x);
    }
    let high = high_bits_f64(s);
    let low = (z - high * high) / (s + high);
    let rest = 2.0 * s * tail - (6.123233995736766e-17 - 2.0 * low);
    return copy_sign_f64(0.7853981633974483 - (rest - (0.7853981633974483 - 2.0 * high)), x);
}

fn acos_f64(x: f64) -> f64 {
    let a = abs(x);
    if is_nan_f64(x) || a > 1.0 {
        return nan_like_f64(x);
    }
    if a < 0.5 {
        return 1.5707963267948966 - (x - (6.123233995736766e-17 - x * asin_tail_f64(x * x)));
    }
    let z = (1.0 - a) * 0.5;
    let s = sqrt(z);
    let tail = asin_tail_f64(z) * s;
    if x < 0.0 {
        return 2.0 * (1.5707963267948966 - (s + (tail - 6.123233995736766e-17)));
    }
    if s == 0.0 {
        return 0.0lf;
    }
    let high = high_bits_f64(s);
    let low = (z - high * high) / (s + high);
    return 2.0 * (high + (tail + low));
}
