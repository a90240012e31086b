// Truncation to integers. Values beyond the range give its end, NaN gives 0.

fn f32_to_i32(x: f32) -> i32 {
    if is_nan_f32(x) {
        return 0;
    }
    if x >= 2147483648.0 {
        return 2147483647;
    }
    return i32(max(x, -2147483648.0));
}

fn f32_to_u32(x: f32) -> u32 {
    if is_nan_f32(x) {
        return 0u;
    }
    if x >= 4294967296.0 {
        return 4294967295u;
    }
    return u32(max(x, 0.0));
}
