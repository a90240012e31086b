//! The comparison with a reference, element by element, and how close a type comes to it.

use tensorflow_wgpu::{DType, HostTensor};

/// The relative tolerance of a function with a few roundings, against a reference in f64 that
/// starts from the rounded inputs.
#[allow(dead_code, reason = "suites of sums have bounds of their own")]
pub const fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2e-3,
        DType::BF16 => 1e-2,
        DType::F64 => 1e-12,
        _ => 1e-5,
    }
}

/// Fails unless each element differs from its reference `w` by at most `bound(w)`. NaN equals NaN,
/// and an infinity itself.
#[allow(dead_code, reason = "suites of sums have bounds of their own")]
#[track_caller]
pub fn assert_within(got: &HostTensor, want: &[f64], bound: impl Fn(f64) -> f64, what: &str) {
    let dtype = got.dtype;
    let got = got.to_f64();
    assert_eq!(got.len(), want.len(), "{what} {dtype}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let is_close = (g - w).abs() <= bound(*w) || (g.is_nan() && w.is_nan()) || g == w;
        assert!(is_close, "{what} {dtype}: element {i} is {g}, want {w} ± {:e}", bound(*w));
    }
}
