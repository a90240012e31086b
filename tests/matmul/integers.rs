//! Products of integers, which wrap in the result's type.

use super::numeric::bindings::under;
use super::numeric::session;
use super::{batched, swapped};
use tensorflow_wgpu::device::Profile;
use tensorflow_wgpu::{DType, HostTensor};

/// Integers of the whole type, of which the low 64 bits matter.
fn integers(dtype: DType, dims: &[usize], seed: u64) -> (HostTensor, Vec<i64>) {
    let mut state = seed * 2 + 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.cast_signed() >> 7
    };
    let v: Vec<i64> = (0..dims.iter().product()).map(|_| next()).collect();
    match dtype {
        DType::I8 => {
            let v: Vec<i8> = v.iter().map(|v| *v as i8).collect();
            (HostTensor::of(dtype, dims, &v), v.into_iter().map(i64::from).collect())
        }
        DType::I16 => {
            let v: Vec<i16> = v.iter().map(|v| *v as i16).collect();
            (HostTensor::of(dtype, dims, &v), v.into_iter().map(i64::from).collect())
        }
        _ => (HostTensor::of(dtype, dims, &v), v),
    }
}

fn check(dtype: DType, [m, k, n]: [usize; 3], ta: bool, tb: bool, misalign: usize) {
    let mut session = session();
    if !session.runs(dtype) {
        return;
    }
    session.misalign = misalign;
    let (a, x) = integers(dtype, &swapped(m, k, ta), (m * k) as u64);
    let (b, y) = integers(dtype, &swapped(k, n, tb), (n + k) as u64);
    let mut want = vec![0i64; m * n];
    for (i, c) in want.iter_mut().enumerate() {
        let (row, column) = (i / n, i % n);
        for l in 0..k {
            let left = if ta { x[l * m + row] } else { x[row * k + l] };
            let right = if tb { y[column * k + l] } else { y[l * n + column] };
            *c = c.wrapping_add(left.wrapping_mul(right));
        }
    }
    let node = batched("BatchMatMulV3", dtype, ta, tb);
    let got = session.run(&node, &[a.into(), b.into()]).unwrap().remove(0);
    let what = format!("{dtype} {m}x{k}x{n} {ta} {tb} {}", session.device.profile().name);
    match dtype {
        DType::I8 => {
            assert_eq!(got.dtype, DType::I32);
            assert!(got.values::<i32>().iter().zip(&want).all(|(g, w)| *g == *w as i32), "{what}");
        }
        DType::I16 => {
            assert!(got.values::<i16>().iter().zip(&want).all(|(g, w)| *g == *w as i16), "{what}");
        }
        _ => assert_eq!(got.values::<i64>(), want, "{what}"),
    }
}

#[test]
fn integers_wrap() {
    for profile in Profile::DISTINCT {
        under(profile, || {
            for dtype in [DType::I64, DType::I16, DType::I8] {
                for shape in [[7, 13, 5], [8, 16, 64], [1, 1, 1], [65, 33, 66], [12, 8, 20]] {
                    for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
                        check(dtype, shape, ta, tb, 0);
                    }
                }
                // Contractions that are split, narrow results, operands at odd addresses.
                check(dtype, [1, 2000, 1], false, false, 0);
                check(dtype, [4, 40_000, 8], false, true, 0);
                check(dtype, [130, 96, 3], false, false, 0);
                // Tiles that have edges in both directions; words of bytes fill them.
                for tb in [false, true] {
                    check(dtype, [140, 48, 132], false, tb, 0);
                    check(dtype, [1, 520, 260], false, tb, 0);
                }
                check(dtype, [16, 8, 12], true, false, 1);
            }
        });
    }
}
