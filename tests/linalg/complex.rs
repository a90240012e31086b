//! Complex matrices: residuals in float64 pairs.

use super::*;
use tensorflow_wgpu::DType::{C64, C128};

/// Complex values, as pairs.
type Pairs = Vec<[f64; 2]>;

fn times(a: [f64; 2], b: [f64; 2]) -> [f64; 2] {
    [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
}

/// `a b` of `m` rows, with `k` columns in between.
fn product(a: &[[f64; 2]], b: &[[f64; 2]], m: usize, k: usize) -> Pairs {
    let cols = b.len() / k;
    let mut c = vec![[0.0; 2]; m * cols];
    for i in 0..m {
        for x in 0..k {
            for j in 0..cols {
                let v = times(a[i * k + x], b[x * cols + j]);
                let sum = &mut c[i * cols + j];
                *sum = [sum[0] + v[0], sum[1] + v[1]];
            }
        }
    }
    c
}

fn value(dtype: DType, dims: &[usize], v: &[[f64; 2]]) -> HostTensor {
    match dtype {
        C64 => {
            let v: Vec<[f32; 2]> = v.iter().map(|v| v.map(|x| x as f32)).collect();
            HostTensor::of(dtype, dims, &v)
        }
        _ => HostTensor::of(dtype, dims, v),
    }
}

fn pairs_of(t: &HostTensor) -> Pairs {
    match t.dtype {
        C64 => t.values::<[f32; 2]>().iter().map(|v| v.map(f64::from)).collect(),
        _ => t.values(),
    }
}

/// The conjugate transpose of an `m` x `n` matrix.
fn adjoint_of(a: &[[f64; 2]], m: usize, n: usize) -> Pairs {
    (0..m * n).map(|t| a[t % m * n + t / m]).map(|[re, im]| [re, -im]).collect()
}

fn noise_pairs(count: usize, seed: u64) -> Pairs {
    noise(2 * count, seed).chunks(2).map(|v| [v[0], v[1]].map(|x| f64::from(x as f32))).collect()
}

fn unit_matrix(n: usize) -> Pairs {
    (0..n * n).map(|t| [f64::from(u8::from(t / n == t % n)), 0.0]).collect()
}

/// Noise with a heavier diagonal that moves one column to the right, so that pivoting matters.
fn conditioned_pairs(count: usize, n: usize) -> Pairs {
    let mut a = noise_pairs(count * n * n, (count * 1000 + n) as u64);
    for i in 0..count * n {
        let place = i * n + (i % n + 1) % n;
        let heavy = f64::from((2.0 * (n as f64).sqrt()) as f32);
        a[place] = [a[place][0], a[place][1] + heavy].map(|x| f64::from(x as f32));
    }
    a
}

/// Matrix `i` of a batch.
fn at(a: &[[f64; 2]], i: usize, len: usize) -> &[[f64; 2]] {
    &a[i * len..][..len]
}

#[track_caller]
fn near(got: &[[f64; 2]], want: &[[f64; 2]], bound: f64, what: &str) {
    assert_small(distance(got.as_flattened(), want.as_flattened()), bound, what);
}

/// Runs `check` with each complex type that the device has, and its precision.
fn for_each_complex(check: impl Fn(&mut Session, DType, f64)) {
    let mut session = Session::shared().unwrap();
    for (dtype, precision) in [(C64, 1.2e-7), (C128, 2.3e-16)] {
        if session.runs(dtype) {
            check(&mut session, dtype, precision);
        }
    }
}

const BATCHES: &[(usize, usize, usize)] =
    &[(1, 1, 0), (3, 2, 1), (2, 5, 1), (1, 40, 0), (2, 70, 0), (1, 130, 1)];

#[test]
fn inverse_and_solution() {
    for_each_complex(|session, dtype, precision| {
        for &(batch, n, misalign) in BATCHES {
            session.misalign = misalign;
            let a = conditioned_pairs(batch, n);
            let t = value(dtype, &[batch, n, n], &a);
            let b = noise_pairs(batch * n * 3, 3);
            let right = value(dtype, &[batch, n, 3], &b);
            let bound = 300.0 * n as f64 * precision;
            for adjoint in [false, true] {
                let op = node("MatrixInverse", dtype).attr("adjoint", adjoint);
                let inverse = pairs_of(&run(session, &op, std::slice::from_ref(&t))[0]);
                let op = node("MatrixSolve", dtype).attr("adjoint", adjoint);
                let x = pairs_of(&run(session, &op, &[t.clone(), right.clone()])[0]);
                for m in 0..batch {
                    let own = at(&a, m, n * n);
                    let own = if adjoint { adjoint_of(own, n, n) } else { own.to_vec() };
                    let what = format!("{dtype}, {n} rows, adjoint {adjoint}");
                    let one = product(&own, at(&inverse, m, n * n), n, n);
                    near(&one, &unit_matrix(n), bound, &what);
                    let got = product(&own, at(&x, m, n * 3), n, n);
                    near(&got, at(&b, m, n * 3), bound, &what);
                }
            }
        }
        let op = node("MatrixInverse", dtype).attr("adjoint", false);
        let zeros = value(dtype, &[2, 2], &[[0.0; 2]; 4]);
        assert!(failure(session, &op, &[zeros]).contains("not invertible"));
    });
}

#[test]
fn cholesky() {
    for_each_complex(|session, dtype, precision| {
        for &(batch, n, misalign) in BATCHES {
            session.misalign = misalign;
            let a = noise_pairs(batch * n * n, n as u64);
            let mut spd = Vec::new();
            for m in 0..batch {
                let own = at(&a, m, n * n);
                let mut all = product(own, &adjoint_of(own, n, n), n, n);
                for i in 0..n {
                    all[i * n + i] = [all[i * n + i][0] + n as f64, 0.0];
                }
                spd.extend(all);
            }
            let rounded = pairs_of(&value(dtype, &[batch, n, n], &spd));
            // The elements above the diagonal, and its imaginary parts, do not matter.
            let mut dirty = rounded.clone();
            for (t, v) in dirty.iter_mut().enumerate() {
                match (t / n % n).cmp(&(t % n)) {
                    std::cmp::Ordering::Less => *v = [9.0, 9.0],
                    std::cmp::Ordering::Equal => v[1] = 5.0,
                    std::cmp::Ordering::Greater => {}
                }
            }
            let t = value(dtype, &[batch, n, n], &dirty);
            let l = pairs_of(&run(session, &node("Cholesky", dtype), &[t])[0]);
            for m in 0..batch {
                let own = at(&l, m, n * n);
                let got = product(own, &adjoint_of(own, n, n), n, n);
                let bound = 30.0 * (n * n) as f64 * precision;
                near(&got, at(&rounded, m, n * n), bound, &format!("{dtype}, {n} rows"));
                for (i, v) in own.iter().enumerate() {
                    assert!(i % n <= i / n || *v == [0.0; 2], "above the diagonal");
                    assert!(i % n != i / n || v[1] == 0.0 && v[0] > 0.0, "the diagonal");
                }
            }
        }
        let negative = value(dtype, &[2, 2], &[[1.0, 0.0], [0.0; 2], [3.0, 1.0], [1.0, 0.0]]);
        let l = pairs_of(&run(session, &node("Cholesky", dtype), &[negative])[0]);
        assert!(l[0][0].is_nan() && l[2][0].is_nan() && l[1] == [0.0; 2], "{l:?}");
        let wide = value(dtype, &[1, 2], &[[1.0; 2]; 2]);
        assert!(failure(session, &node("Cholesky", dtype), &[wide]).contains("must be square"));
        let none = run(session, &node("Cholesky", dtype), &[value(dtype, &[0, 3, 3], &[])]);
        assert_eq!(none[0].dims[..], [0, 3, 3]);
    });
}

#[test]
fn triangular_solve() {
    for_each_complex(|session, dtype, precision| {
        let cases = [(1, 3, 1, 1), (5, 2, 3, 3), (70, 5, 1, 2), (130, 4, 2, 1)];
        for (n, cols, of_a, of_b) in cases {
            let mut a = noise_pairs(of_a * n * n, n as u64);
            for i in 0..of_a * n {
                a[i * n + i % n][1] += f64::from(3.0 * (n as f32).sqrt());
            }
            let b = noise_pairs(of_b * n * cols, 7);
            let inputs = [value(dtype, &[of_a, n, n], &a), value(dtype, &[of_b, n, cols], &b)];
            let a = pairs_of(&inputs[0]);
            for (lower, adjoint) in [(true, false), (true, true), (false, false), (false, true)] {
                let op = node("MatrixTriangularSolve", dtype);
                let op = op.attr("lower", lower).attr("adjoint", adjoint);
                let x = run(session, &op, &inputs).remove(0);
                let batch = of_a.max(of_b);
                assert_eq!(x.dims[..], [batch, n, cols]);
                let x = pairs_of(&x);
                for m in 0..batch {
                    let own = at(&a, m % of_a, n * n);
                    let keep = |t: usize| if lower { t % n <= t / n } else { t / n <= t % n };
                    let own: Pairs =
                        (0..n * n).map(|t| if keep(t) { own[t] } else { [0.0; 2] }).collect();
                    let own = if adjoint { adjoint_of(&own, n, n) } else { own };
                    let got = product(&own, at(&x, m, n * cols), n, n);
                    let what = format!("{dtype}, {n} rows, lower {lower}, adjoint {adjoint}");
                    let want = at(&b, m % of_b, n * cols);
                    near(&got, want, 100.0 * n as f64 * precision, &what);
                }
            }
        }
    });
}

/// The determinant by elimination with pivots of the largest size, in float64.
fn determinant_of(a: &[[f64; 2]], n: usize) -> [f64; 2] {
    let mut a = a.to_vec();
    let mut det = [1.0, 0.0];
    let size = |z: [f64; 2]| z[0].hypot(z[1]);
    for k in 0..n {
        let by = |i: &usize, j: &usize| size(a[i * n + k]).total_cmp(&size(a[j * n + k]));
        let pivot = (k..n).max_by(by).unwrap();
        if pivot != k {
            (0..n).for_each(|j| a.swap(k * n + j, pivot * n + j));
            det = det.map(|x| -x);
        }
        let [re, im] = a[k * n + k];
        let inverse = [re, -im].map(|x| x / (re * re + im * im));
        det = times(det, [re, im]);
        for i in k + 1..n {
            let factor = times(a[i * n + k], inverse);
            for j in k..n {
                let v = times(factor, a[k * n + j]);
                a[i * n + j] = [a[i * n + j][0] - v[0], a[i * n + j][1] - v[1]];
            }
        }
    }
    det
}

#[test]
fn lu_and_determinants() {
    for_each_complex(|session, dtype, precision| {
        for &(batch, n, misalign) in BATCHES {
            session.misalign = misalign;
            let a = conditioned_pairs(batch, n);
            let t = value(dtype, &[batch, n, n], &a);
            let what = format!("{dtype}, {n} rows");
            for index in [I32, I64] {
                let op = node("Lu", dtype).attr("output_idx_type", index);
                let out = run(session, &op, std::slice::from_ref(&t));
                let (lu, rows) = (pairs_of(&out[0]), out[1].to_i64().unwrap());
                for m in 0..batch {
                    let own = at(&lu, m, n * n);
                    let part = |keep: &dyn Fn(usize, usize) -> bool| -> Pairs {
                        (0..n * n)
                            .map(|t| if keep(t / n, t % n) { own[t] } else { [0.0; 2] })
                            .collect()
                    };
                    let mut l = part(&|i, j| j < i);
                    assert!(l.iter().all(|z| z[0].hypot(z[1]) <= 1.0 + 1e-6), "{what}: pivots");
                    (0..n).for_each(|i| l[i * n + i] = [1.0, 0.0]);
                    let got = product(&l, &part(&|i, j| i <= j), n, n);
                    let rows = &rows[m * n..][..n];
                    let permuted: Pairs = (0..n * n)
                        .map(|t| at(&a, m, n * n)[rows[t / n] as usize * n + t % n])
                        .collect();
                    near(&got, &permuted, 30.0 * n as f64 * precision, &what);
                }
            }
            let logs = run(session, &node("LogMatrixDeterminant", dtype), std::slice::from_ref(&t));
            let (sign, log) = (pairs_of(&logs[0]), pairs_of(&logs[1]));
            // Scaled, so that the determinant is a float32 number.
            let scale = 1.0 / (2.0 * (n as f64).sqrt());
            let scaled: Pairs =
                a.iter().map(|z| z.map(|x| f64::from((x * scale) as f32))).collect();
            let t = value(dtype, &[batch, n, n], &scaled);
            let det = pairs_of(&run(session, &node("MatrixDeterminant", dtype), &[t])[0]);
            for m in 0..batch {
                let want = determinant_of(at(&scaled, m, n * n), n);
                let size = want[0].hypot(want[1]);
                let bound = 100.0 * (n * n) as f64 * precision;
                near(&[det[m]], &[want], bound * size, &what);
                let want = determinant_of(at(&a, m, n * n), n);
                let size = want[0].hypot(want[1]);
                near(&[sign[m]], &[want.map(|x| x / size)], bound, &what);
                near(&[log[m]], &[[size.ln(), 0.0]], bound * (1.0 + size.ln().abs()), &what);
            }
        }
        let singular = value(dtype, &[2, 2], &[[0.0, 1.0], [0.0, 2.0], [1.0, 0.0], [2.0, 0.0]]);
        let logs =
            run(session, &node("LogMatrixDeterminant", dtype), std::slice::from_ref(&singular));
        assert_eq!(pairs_of(&logs[0]), [[0.0; 2]]);
        assert_eq!(pairs_of(&logs[1]), [[f64::NEG_INFINITY, 0.0]]);
        let op = node("Lu", dtype).attr("output_idx_type", I32);
        assert!(failure(session, &op, &[singular]).contains("not invertible"));
        // No product of pivots overflows or vanishes on the way.
        let far = value(
            dtype,
            &[4, 4],
            &[1e30, 1e30, 1e-30, 1e-30]
                .iter()
                .enumerate()
                .flat_map(|(i, x)| (0..4).map(move |j| [0.0, if i == j { *x } else { 0.0 }]))
                .collect::<Pairs>(),
        );
        let det = pairs_of(&run(session, &node("MatrixDeterminant", dtype), &[far])[0]);
        near(&det, &[[1.0, 0.0]], 1e-5, "i 1e30 and i 1e-30");
    });
}

#[test]
fn qr() {
    for_each_complex(|session, dtype, precision| {
        let cases =
            [(1, 1, 1), (3, 3, 3), (2, 5, 2), (2, 2, 5), (1, 70, 33), (1, 33, 70), (1, 130, 130)];
        for (case, (batch, m, n)) in cases.into_iter().enumerate() {
            session.misalign = case % 2;
            let x = noise_pairs(batch * m * n, (m * n) as u64);
            for full in [false, true] {
                let op = node("Qr", dtype).attr("full_matrices", full);
                let out = run(session, &op, &[value(dtype, &[batch, m, n], &x)]);
                let inner = if full { m } else { m.min(n) };
                let (q, r) = (pairs_of(&out[0]), pairs_of(&out[1]));
                let bound = 20.0 * m.max(n) as f64 * precision;
                let what = format!("{dtype}, {m} x {n}, full {full}");
                for b in 0..batch {
                    let (q, r) = (at(&q, b, m * inner), at(&r, b, inner * n));
                    let gram = product(&adjoint_of(q, m, inner), q, inner, m);
                    near(&gram, &unit_matrix(inner), bound, &what);
                    near(&product(q, r, m, inner), at(&x, b, m * n), bound, &what);
                    let below = (0..inner * n).filter(|t| t / n > t % n);
                    assert!(below.into_iter().all(|t| r[t] == [0.0; 2]), "{what}");
                    // LAPACK's diagonal is real, and opposite to the real part of a column's head.
                    assert!(r[0][1] == 0.0 && r[0][0] * x[b * m * n][0] <= 0.0, "{what}");
                    assert!((0..m.min(n)).all(|i| r[i * n + i][1] == 0.0), "{what}");
                }
            }
        }
        // A column that is zero but for an imaginary head.
        let op = node("Qr", dtype).attr("full_matrices", true);
        let x = [[0.0, 2.0], [0.0; 2], [0.0; 2], [0.0; 2]];
        let out = run(session, &op, &[value(dtype, &[2, 2], &x)]);
        near(&product(&pairs_of(&out[0]), &pairs_of(&out[1]), 2, 2), &x, 1e-6, "imaginary head");
    });
}

#[test]
fn eigenvalues_and_vectors() {
    for_each_complex(|session, dtype, precision| {
        for (case, (batch, n)) in
            [(1, 1), (2, 2), (300, 3), (2, 16), (1, 17), (1, 33), (1, 90)].into_iter().enumerate()
        {
            session.misalign = case % 2;
            let x = noise_pairs(batch * n * n, n as u64);
            let t = value(dtype, &[batch, n, n], &x);
            let op = node("SelfAdjointEigV2", dtype);
            let out = run(session, &op.clone().attr("compute_v", true), std::slice::from_ref(&t));
            let values = run(session, &op.attr("compute_v", false), &[t]);
            assert_eq!(values[0], out[0]);
            let (e, v) = (pairs_of(&out[0]), pairs_of(&out[1]));
            let bound = 30.0 * n as f64 * precision;
            let what = format!("{dtype}, {n} rows");
            for b in 0..batch {
                // Only the lower triangle counts, and the real part of the diagonal.
                let mut a = at(&x, b, n * n).to_vec();
                for i in 0..n {
                    a[i * n + i][1] = 0.0;
                    for j in i + 1..n {
                        a[i * n + j] = [a[j * n + i][0], -a[j * n + i][1]];
                    }
                }
                let (e, v) = (at(&e, b, n), at(&v, b, n * n));
                assert!(e.iter().all(|e| e[1] == 0.0), "{what}");
                assert!(e.windows(2).all(|w| w[0][0] <= w[1][0]), "{what}: {e:?}");
                let scaled: Pairs = (0..n * n).map(|t| times(v[t], e[t % n])).collect();
                near(&product(&a, v, n, n), &scaled, bound, &what);
                near(&product(&adjoint_of(v, n, n), v, n, n), &unit_matrix(n), bound, &what);
            }
        }
    });
}

#[test]
fn tridiagonal() {
    for_each_complex(|session, dtype, precision| {
        for (batch, n, cols) in [(1, 1, 1), (2, 2, 3), (3, 9, 2), (1, 200, 1)] {
            let mut diagonals = noise_pairs(batch * 3 * n, n as u64);
            for b in 0..batch {
                for i in 0..n {
                    diagonals[(3 * b + 1) * n + i][1] += 3.0;
                }
            }
            let t = value(dtype, &[batch, 3, n], &diagonals);
            let diagonals = pairs_of(&t);
            let right = noise_pairs(batch * n * cols, 5);
            for pivot in [false, true] {
                let op = node("TridiagonalSolve", dtype)
                    .attr("partial_pivoting", pivot)
                    .attr("perturb_singular", false);
                let x = run(session, &op, &[t.clone(), value(dtype, &[batch, n, cols], &right)]);
                let parts = [0, 1, 2].map(|d| {
                    let own: Pairs =
                        (0..batch).flat_map(|b| at(&diagonals, 3 * b + d, n).to_vec()).collect();
                    value(dtype, &[batch, 1, n], &own)
                });
                let [above, middle, below] = parts;
                let op = node("TridiagonalMatMul", dtype);
                let got = run(session, &op, &[above, middle, below, x[0].clone()]);
                let what = format!("{dtype}, {n} rows, pivot {pivot}");
                near(&pairs_of(&got[0]), &right, 100.0 * precision, &what);
            }
        }
    });
}
