// Hyperbolic functions of float64 and their inverses within 3 ulp.

fn sinh_f64(x: f64) -> f64 {
    let a = abs(x);
    if is_nan_f64(x) || a < 1e-8 {
        return x;
    }
    if a < 22.0 {
        let t = expm1_f64(a);
        return copy_sign_f64(0.5 * select(t + t / (t + 1.0), 2.0 * t - t * t / (t + 1.0), a < 1.0),
            x);
    }
    let root = exp_f64(0.5 * a);
    return copy_sign_f64((0.5 * root) * root, x);
}

fn cosh_f64(x: f64) -> f64 {
    let a = abs(x);
    if a < 22.0 {
        let e = exp_f64(a);
        return 0.5 * e + 0.5 / e;
    }
    let root = exp_f64(0.5 * a);
    return (0.5 * root) * root;
}

fn tanh_f64(x: f64) -> f64 {
    let a = abs(x);
    if is_nan_f64(x) || a < 1e-9 {
        return x;
    }
    if a > 22.0 {
        return copy_sign_f64(1.0lf, x);
    }
    if a > 0.5493 {
        return copy_sign_f64(1.0 - 2.0 / (expm1_f64(2.0 * a) + 2.0), x);
    }
    let t = expm1_f64(-2.0 * a);
    return copy_sign_f64(-t / (t + 2.0), x);
}

fn asinh_f64(x: f64) -> f64 {
    let a = abs(x);
    if !is_finite_f64(x) || a < 1e-9 {
        return x;
    }
    if a > 268435456.0 {
        return copy_sign_f64(log_f64(a) + 0.6931471805599453, x);
    }
    let z = a * a;
    if a > 2.0 {
        return copy_sign_f64(log_f64(2.0 * a + 1.0 / (sqrt(z + 1.0) + a)), x);
    }
    return copy_sign_f64(log1p_f64(a + z / (1.0 + sqrt(z + 1.0))), x);
}

fn acosh_f64(x: f64) -> f64 {
    if is_nan_f64(x) || x < 1.0 {
        return nan_like_f64(x);
    }
    if x > 268435456.0 {
        return log_f64(x) + 0.6931471805599453;
    }
    let t = x - 1.0;
    return log1p_f64(t + sqrt(2.0 * t + t * t));
}

fn atanh_f64(x: f64) -> f64 {
    let a = abs(x);
    if is_nan_f64(x) || a > 1.0 {
        return nan_like_f64(x);
    }
    if a == 1.0 {
        return infinity_like_f64(x);
    }
    if a < 1e-9 {
        return x;
    }
    let t = a + a;
    return copy_sign_f64(0.5 * log1p_f64(select(t / (1.0 - a), t + t * a / (1.0 - a), a < 0.5)), x);
}
