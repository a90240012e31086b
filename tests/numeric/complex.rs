//! Random values and comparison for tests whose types are real or complex, declared by path next to
//! `mod numeric`.

use tensorflow_wgpu::{DType, HostTensor};

use super::numeric::{Random, assert_close};

/// Random values of a real or complex type, as pairs of real and imaginary parts.
pub fn complex_or_real(
    random: &mut Random,
    dtype: DType,
    dims: &[usize],
) -> (HostTensor, Vec<(f64, f64)>) {
    let part = match dtype {
        DType::C64 => DType::F32,
        DType::C128 => DType::F64,
        _ => {
            let (tensor, values) = random.tensor(dtype, dims);
            return (tensor, values.into_iter().map(|v| (v, 0.0)).collect());
        }
    };
    let pairs: Vec<_> = dims.iter().copied().chain([2]).collect();
    let (parts, values) = random.tensor(part, &pairs);
    let tensor = HostTensor { dtype, dims: dims.into(), bytes: parts.bytes };
    (tensor, values.chunks(2).map(|v| (v[0], v[1])).collect())
}

/// [`assert_close`] for real or complex results.
pub fn assert_complex_close(got: &HostTensor, want: &[(f64, f64)], scale: f64, what: &str) {
    let part = match got.dtype {
        DType::C64 => DType::F32,
        DType::C128 => DType::F64,
        _ => return assert_close(got, &want.iter().map(|w| w.0).collect::<Vec<_>>(), scale, what),
    };
    let dims = got.dims.iter().copied().chain([2]).collect();
    let parts = HostTensor { dtype: part, dims, bytes: got.bytes.clone() };
    assert_close(&parts, &want.iter().flat_map(|w| [w.0, w.1]).collect::<Vec<_>>(), scale, what);
}
