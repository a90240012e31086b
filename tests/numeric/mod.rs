//! Shared by the tests of contractions and pooling: pseudo-random values, comparison, and a session
//! with the driver.

pub mod bindings;

use tensorflow_wgpu::local::Session;
use tensorflow_wgpu::{DType, HostTensor};

#[allow(dead_code, reason = "not every test needs it")]
pub fn session() -> Session {
    bindings::session()
}

/// A linear congruential generator: the same numbers on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % n as u64) as usize
    }

    #[allow(dead_code, reason = "not every test needs it")]
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    #[allow(dead_code, reason = "not every test needs it")]
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    #[allow(dead_code, reason = "not every test needs it")]
    pub fn pick_of<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// A tensor of values in [-1, 1], already rounded to `dtype`, and those values.
    pub fn tensor(&mut self, dtype: DType, dims: &[usize]) -> (HostTensor, Vec<f64>) {
        let n = dims.iter().product();
        let values: Vec<f64> = (0..n).map(|_| self.below(2001) as f64 / 1000.0 - 1.0).collect();
        let tensor = HostTensor::floats(dtype, dims, &values);
        let rounded = tensor.to_f64();
        (tensor, rounded)
    }
}

/// Relative rounding step of a type.
pub fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 1e-3,
        DType::BF16 => 8e-3,
        DType::F64 => 1e-14,
        _ => 1e-6,
    }
}

/// `value` as memory holds one of a 16-bit float.
#[allow(dead_code, reason = "not every suite has values between steps")]
pub fn rounded(dtype: DType, value: f64) -> f64 {
    match dtype {
        DType::F16 | DType::BF16 => HostTensor::floats(dtype, &[], &[value]).to_f64()[0],
        _ => value,
    }
}

/// The amount that the scale of [`assert_close`] grows by if sums up to `largest` are rounded in
/// between: a sum between two 16-bit values may become either.
#[allow(dead_code, reason = "as above")]
pub fn either(dtype: DType, largest: f64) -> f64 {
    if dtype.is_narrow_float() { largest * epsilon(dtype) / 1e-6 } else { 0.0 }
}

/// Compares with a reference. `scale[i]` is the sum of the absolute values of the summands of
/// element i.
pub fn assert_close(got: &HostTensor, want: &[f64], scale: f64, what: &str) {
    let values = got.to_f64();
    assert_eq!(values.len(), want.len(), "{what}");
    let eps = epsilon(got.dtype);
    for (i, (g, w)) in values.iter().zip(want).enumerate() {
        let tolerance = eps * w.abs() + 2.0 * eps.min(1e-6) * scale;
        assert!(
            (g - w).abs() <= tolerance,
            "{what}: element {i} is {g}, want {w} (tolerance {tolerance:e})"
        );
    }
}
