// `round_f16` where the driver's conversions are known to round to nearest even.
fn round_f16(v: f32) -> f32 {
    return f32(f16(v));
}
