// `v` after a store to memory as IEEE binary16 and a load.
fn round_f16(v: f32) -> f32 {
    return unpack2x16float(f16_bits(v)).x;
}
