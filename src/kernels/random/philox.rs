//! The state of TensorFlow's generator, Philox4x32-10, on the host: seeding, skipping and single
//! samples. The numbers of tensors are drawn on the device (`shaders/lib/philox.wgsl`).

use std::hash::{BuildHasher, RandomState};

use crate::device::declare_params;

declare_params! {
    /// A counter and a key; least significant words first. One counter value stands for a sample of
    /// 128 random bits. `counter` is the number of the next sample, `key` the number of the stream,
    /// one of 2^64.
    #[derive(Debug, PartialEq, Eq)]
    pub struct Generator { counter: [u32; 4], key: [u32; 2] }
}

const fn words(v: u64) -> [u32; 2] {
    [v as u32, (v >> 32) as u32]
}

impl Generator {
    /// The generator of a stateless op's two seeds. They are scrambled by one sample, so that seeds
    /// that differ little give unrelated streams.
    pub fn scrambled(seed: [i64; 2]) -> Self {
        let ([a, b], [c, d]) = (words(seed[0].cast_unsigned()), words(seed[1].cast_unsigned()));
        let mix = Self { counter: [a, b, c, d], key: [0x3ec8_f720, 0x0246_1e29] }.sample();
        Self { counter: [0, 0, mix[2], mix[3]], key: [mix[0], mix[1]] }
    }

    /// The generator of a stateful op's attributes `seed` and `seed2`; if both are zero, it is
    /// unpredictable.
    pub fn seeded(seed: i64, seed2: i64) -> Self {
        let (seed, seed2) = match (seed, seed2) {
            // Each `RandomState` has different keys, which come from the operating system's
            // entropy.
            (0, 0) => (RandomState::new().hash_one(0u64), RandomState::new().hash_one(1u64)),
            (a, b) => (a.cast_unsigned(), b.cast_unsigned()),
        };
        let [low, high] = words(seed2);
        Self { counter: [0, 0, low, high], key: words(seed) }
    }

    /// The 128 bits of the current counter.
    pub fn sample(&self) -> [u32; 4] {
        let product = |a: u32, b: u32| words(u64::from(a) * u64::from(b));
        let ([mut a, mut b, mut c, mut d], [mut k, mut l]) = (self.counter, self.key);
        for _ in 0..10 {
            let ([low, high], [low2, high2]) = (product(0xd251_1f53, a), product(0xcd9e_8d57, c));
            (a, b, c, d) = (high2 ^ b ^ k, low2, high ^ d ^ l, low);
            k = k.wrapping_add(0x9e37_79b9);
            l = l.wrapping_add(0xbb67_ae85);
        }
        [a, b, c, d]
    }

    /// Moves the counter on by `samples`.
    pub fn skip(&mut self, samples: u64) {
        let join = |w: &[u32]| u64::from(w[0]) | u64::from(w[1]) << 32;
        let (low, carry) = join(&self.counter[..2]).overflowing_add(samples);
        let high = join(&self.counter[2..]).wrapping_add(u64::from(carry));
        let ([a, b], [c, d]) = (words(low), words(high));
        self.counter = [a, b, c, d];
    }

    /// The key as TensorFlow's uint64 tensor holds it.
    pub fn key_u64(&self) -> u64 {
        u64::from(self.key[0]) | u64::from(self.key[1]) << 32
    }

    /// The counter as TensorFlow's uint64 tensor holds it, least significant number first.
    pub fn counter_u64s(&self) -> [u64; 2] {
        let [a, b, c, d] = self.counter.map(u64::from);
        [a | b << 32, c | d << 32]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that come with the authors' library Random123.
    #[test]
    fn known_answers() {
        let answers = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in answers {
            assert_eq!(Generator { counter, key }.sample(), expected, "{counter:x?} {key:x?}");
        }
    }

    #[test]
    fn skipping_carries_through_all_words() {
        let mut g = Generator { counter: [u32::MAX, u32::MAX, u32::MAX, 7], key: [0; 2] };
        g.skip(1);
        assert_eq!(g.counter, [0, 0, 0, 8]);
        g.skip(u64::MAX);
        assert_eq!(g.counter, [u32::MAX, u32::MAX, 0, 8]);
        g.skip(1 << 32);
        assert_eq!(g.counter, [u32::MAX, 0, 1, 8]);
    }

    #[test]
    fn seeds_of_zero_are_unpredictable_and_others_are_not() {
        assert_ne!(Generator::seeded(0, 0), Generator::seeded(0, 0));
        assert_eq!(
            Generator::seeded(-1, 2),
            Generator { counter: [0, 0, 2, 0], key: [u32::MAX; 2] }
        );
    }
}
