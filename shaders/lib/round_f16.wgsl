// requires: f16_bits
// `v` as it comes back from memory as IEEE binary16.
fn round_f16(v: f32) -> f32 {
    return unpack2x16float(f16_bits(v)).x;
}
