// Order with NaN both above and below everything, by bits: drivers may assume that NaN does not
// occur.
fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn greater(a: f32, b: f32) -> f32 {
    return select(select(a, b, b > a || is_nan(b)), a, is_nan(a));
}

fn lesser(a: f32, b: f32) -> f32 {
    return select(select(a, b, b < a || is_nan(b)), a, is_nan(a));
}
