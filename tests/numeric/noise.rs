//! Numbers for matrices whose exact values do not matter.

/// Numbers between -1 and 1 that look random, different for each seed, exact in float32.
pub fn noise(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        f64::from((state >> 40) as f32 / (1u64 << 23) as f32 - 1.0)
    };
    (0..count).map(|_| next()).collect()
}
