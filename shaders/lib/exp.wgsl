// exp and expm1 within 1 to 2 ulp; WGSL's own exp may be off by 3 + 2|x| ulp.

// x = k ln 2 + r, |r| <= ln 2 / 2. The product k * 0.693359375 is exact, since the factor has 9
// bits. The difference is opaque: compilers with fast mathematics would subtract k ln 2 at once.
struct ExpReduction {
    k: f32,
    r: f32,
}

fn exp_reduce_f32(x: f32) -> ExpReduction {
    let k = round(x * 1.44269504);
    return ExpReduction(k, opaque_f32(x - k * 0.693359375) + k * 2.12194440e-4);
}

// exp(r) - 1 for |r| <= ln 2 / 2.
fn expm1_small_f32(r: f32) -> f32 {
    let q = ((((1.9917832472e-4 * r + 1.3946086707e-3) * r + 8.3332654128e-3) * r + 4.1666269693e-2)
        * r
        + 1.6666666856e-1) * r + 5.0000000780e-1;
    return r + r * r * q;
}

// 2^k for -126 <= k <= 127.
fn power_of_two_f32(k: i32) -> f32 {
    return bitcast<f32>(u32(k + 127) << 23u);
}

// y * 2^k, in two steps so that neither factor overflows, in an order that compilers keep.
fn scale_f32(y: f32, k: i32) -> f32 {
    let half = k >> 1u;
    return opaque_f32(y * power_of_two_f32(half)) * power_of_two_f32(k - half);
}

// 2^k for whole k, -126 <= k <= 127: the last bits of 1.5 * 2^23 + k hold k. This is cheaper than a
// conversion, which WGSL saturates.
fn whole_power_of_two_f32(k: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(k + 12582912.0) << 23u) + 0x3f800000u);
}

// There are no branches, since software adapters execute all sides of one, and for four elements
// one after the other.
fn exp_f32(x: f32) -> f32 {
    let e = exp_reduce_f32(clamp(x, -104.0, 89.0));
    let half = floor(0.5 * e.k);
    let scaled = opaque_f32((1.0 + expm1_small_f32(e.r)) * whole_power_of_two_f32(half));
    let y = scaled * whole_power_of_two_f32(e.k - half);
    return select(select(y, infinity_like_f32(1.0), x > 88.7228394), x, is_nan_f32(x));
}

fn expm1_f32(x: f32) -> f32 {
    if is_nan_f32(x) || x == 0.0 {
        return x;
    }
    if x > 17.0 {
        return exp_f32(x) - 1.0;
    }
    if x < -18.0 {
        return -1.0;
    }
    let e = exp_reduce_f32(x);
    let small = expm1_small_f32(e.r);
    if e.k == 0.0 {
        return small;
    }
    let power = power_of_two_f32(i32(e.k));
    return (power - 1.0) + power * small;
}

fn sigmoid_f32(x: f32) -> f32 {
    return 1.0 / (1.0 + exp_f32(-x));
}
