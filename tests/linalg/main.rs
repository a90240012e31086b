//! Linear algebra: residuals and orthogonality in float64, and a plain LU for determinants.

mod cholesky;
mod complex;
#[path = "../numeric/noise.rs"]
mod noise;
mod qr;

use noise::noise;
use tensorflow_wgpu::DType::{self, F32, F64, I32, I64};
use tensorflow_wgpu::device::Profile;
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{Error, HostTensor};

fn matmul(a: &[f64], b: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for x in 0..k {
            for j in 0..n {
                c[i * n + j] += a[i * k + x] * b[x * n + j];
            }
        }
    }
    c
}

fn transpose(a: &[f64], m: usize, n: usize) -> Vec<f64> {
    (0..m * n).map(|t| a[t % m * n + t / m]).collect()
}

fn identity(n: usize) -> Vec<f64> {
    (0..n * n).map(|t| f64::from(u8::from(t / n == t % n))).collect()
}

/// The largest difference.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(x, y)| (x - y).abs());
    differences.fold(0.0, |worst, d| if d > worst || d.is_nan() { d } else { worst })
}

#[track_caller]
fn assert_small(error: f64, bound: f64, what: &str) {
    assert!(error <= bound, "{what}: {error:e} exceeds {bound:e}");
}

/// Runs `check` for each type that the device has.
fn for_each_type(check: impl Fn(&mut Session, DType)) {
    for_each_type_on(Session::shared().unwrap(), check);
}

fn for_each_type_on(mut session: Session, check: impl Fn(&mut Session, DType)) {
    for dtype in [F32, F64] {
        if session.runs(dtype) {
            check(&mut session, dtype);
        }
    }
}

/// The factor for error bounds: 1 for float32, for float64 the quotient of the precisions, with
/// room for the reference's own rounding.
fn unit(dtype: DType) -> f64 {
    if dtype == F64 { 1e-8 } else { 1.0 }
}

fn node(op: &str, dtype: DType) -> Node {
    Node::new(op).attr("T", dtype)
}

fn run(session: &mut Session, node: &Node, inputs: &[HostTensor]) -> Vec<HostTensor> {
    let inputs: Vec<Input> = inputs.iter().cloned().map(Input::from).collect();
    session.run(node, &inputs).unwrap()
}

fn failure(session: &mut Session, node: &Node, inputs: &[HostTensor]) -> String {
    let inputs: Vec<Input> = inputs.iter().cloned().map(Input::from).collect();
    match session.run(node, &inputs) {
        Err(Error::InvalidArgument(message)) => message,
        other => panic!("{other:?}"),
    }
}

fn tensor(dtype: DType, dims: &[usize], values: &[f64]) -> HostTensor {
    HostTensor::floats(dtype, dims, values)
}

/// A batch of well conditioned matrices: noise with a heavier diagonal that moves one column to the
/// right, so that pivoting matters.
fn conditioned(count: usize, n: usize) -> Vec<f64> {
    let mut values = noise(count * n * n, (count * 1000 + n) as u64);
    for b in 0..count {
        for i in 0..n {
            values[(b * n + i) * n + (i + 1) % n] += 2.0 * (n as f64).sqrt();
        }
    }
    values.into_iter().map(|v| f64::from(v as f32)).collect()
}

const SIZES: &[usize] = &[1, 2, 3, 16, 17, 33, 64, 65, 130, 132];

#[test]
fn triangular_solve() {
    for_each_type(|session, dtype| {
        let unit = unit(dtype);
        // Batch of the matrices, of the right-hand sides, and of the result.
        let batches: &[(&[usize], &[usize], &[usize])] = &[
            (&[], &[], &[]),
            (&[3], &[3], &[3]),
            (&[], &[2], &[2]),
            (&[2, 1], &[3], &[2, 3]),
            (&[2], &[1], &[2]),
        ];
        for &n in &[1, 5, 64, 70, 530] {
            for (lower, adjoint) in [(true, false), (true, true), (false, false), (false, true)] {
                for &(batch_a, batch_b, batch) in batches {
                    let cols = 3;
                    let count = |dims: &[usize]| dims.iter().product::<usize>();
                    let mut a = noise(count(batch_a) * n * n, n as u64);
                    for (t, v) in a.iter_mut().enumerate() {
                        if t / n % n == t % n {
                            *v = v.abs() + (n as f64).sqrt();
                        }
                    }
                    let a: Vec<_> = a.into_iter().map(|v| f64::from(v as f32)).collect();
                    let b: Vec<_> = noise(count(batch_b) * n * cols, 7)
                        .iter()
                        .map(|v| f64::from(*v as f32))
                        .collect();
                    let dims = |batch: &[usize], m: usize, n: usize| [batch, &[m, n]].concat();
                    let op = node("MatrixTriangularSolve", dtype)
                        .attr("lower", lower)
                        .attr("adjoint", adjoint);
                    let inputs = [
                        tensor(dtype, &dims(batch_a, n, n), &a),
                        tensor(dtype, &dims(batch_b, n, cols), &b),
                    ];
                    let x = run(session, &op, &inputs).remove(0);
                    assert_eq!(x.dims[..], dims(batch, n, cols)[..]);
                    let x = x.to_f64();
                    for k in 0..count(batch) {
                        let pick = |own: &[usize]| match own.len() {
                            0 => 0,
                            _ if own == batch => k,
                            1 if own[0] == 1 => 0,
                            1 => k % own[0],
                            _ => k / batch[1],
                        };
                        let a = &a[pick(batch_a) * n * n..][..n * n];
                        let keep = |t: usize| if lower { t % n <= t / n } else { t / n <= t % n };
                        let t: Vec<_> =
                            (0..n * n).map(|t| if keep(t) { a[t] } else { 0.0 }).collect();
                        let t = if adjoint { transpose(&t, n, n) } else { t };
                        let got = matmul(&t, &x[k * n * cols..][..n * cols], n, n, cols);
                        let what =
                            format!("{n} lower {lower} adjoint {adjoint} {batch_a:?} {batch_b:?}");
                        assert_small(
                            distance(&got, &b[pick(batch_b) * n * cols..][..n * cols]),
                            unit * 2e-5,
                            &what,
                        );
                    }
                }
            }
        }
    });
}

/// Programs of GPUs and of software adapters distribute their loads differently.
#[test]
fn cholesky_and_inverse_by_the_programs_of_gpus() {
    let mut session = Session::under(Profile::NVIDIA).unwrap();
    for n in [7, 68, 136] {
        let x = conditioned(2, n);
        let mut a = Vec::new();
        for x in x.chunks(n * n) {
            a.extend(
                matmul(x, &transpose(x, n, n), n, n, n).into_iter().map(|v| f64::from(v as f32)),
            );
        }
        let l = run(&mut session, &node("Cholesky", F32), &[tensor(F32, &[2, n, n], &a)])
            .remove(0)
            .to_f64();
        for (l, a) in l.chunks(n * n).zip(a.chunks(n * n)) {
            let error = distance(&matmul(l, &transpose(l, n, n), n, n, n), a);
            assert_small(error, 1e-6 * n as f64 * 10.0, &format!("cholesky {n}"));
        }
        let invert = node("MatrixInverse", F32).attr("adjoint", false);
        let inverse = run(&mut session, &invert, &[tensor(F32, &[2, n, n], &x)]).remove(0).to_f64();
        for (inverse, x) in inverse.chunks(n * n).zip(x.chunks(n * n)) {
            assert_small(
                distance(&matmul(inverse, x, n, n, n), &identity(n)),
                4e-6 * n as f64,
                &format!("inverse {n}"),
            );
        }
    }
}

#[test]
fn lu_solve_inverse_and_determinant() {
    for_each_type(|session, dtype| {
        let unit = unit(dtype);
        for &n in SIZES {
            let count = if n < 20 { 3 } else { 2 };
            session.misalign = n % 2;
            let x = conditioned(count, n);
            let matrices = tensor(dtype, &[count, n, n], &x);
            let bound = unit * 4e-6 * n as f64;

            let mut last = None;
            for index in [I32, I64] {
                let out = run(
                    session,
                    &node("Lu", dtype).attr("output_idx_type", index),
                    std::slice::from_ref(&matrices),
                );
                let (lu, p) = (out[0].to_f64(), out[1].to_i64().unwrap());
                assert_eq!((out[1].dtype, &out[1].dims[..]), (index, &[count, n][..]));
                for b in 0..count {
                    let lu = &lu[b * n * n..][..n * n];
                    let part = |lower: bool| -> Vec<f64> {
                        (0..n * n)
                            .map(|t| match (t / n).cmp(&(t % n)) {
                                std::cmp::Ordering::Equal if lower => 1.0,
                                std::cmp::Ordering::Greater if !lower => 0.0,
                                std::cmp::Ordering::Less if lower => 0.0,
                                _ => lu[t],
                            })
                            .collect()
                    };
                    let (l, u) = (part(true), part(false));
                    assert!(l.iter().all(|v| v.abs() <= 1.000_001), "no partial pivoting");
                    let rows: Vec<_> = (0..n)
                        .flat_map(|i| &x[(b * n + p[b * n + i] as usize) * n..][..n])
                        .copied()
                        .collect();
                    assert_small(
                        distance(&matmul(&l, &u, n, n, n), &rows),
                        bound,
                        &format!("lu {n}"),
                    );
                }
                last = Some((lu, p));
            }

            for adjoint in [false, true] {
                let cols = 3;
                let b: Vec<_> =
                    noise(count * n * cols, 5).iter().map(|v| f64::from(*v as f32)).collect();
                let solve = node("MatrixSolve", dtype).attr("adjoint", adjoint);
                let solved =
                    run(session, &solve, &[matrices.clone(), tensor(dtype, &[count, n, cols], &b)])
                        .remove(0)
                        .to_f64();
                let inverse = node("MatrixInverse", dtype).attr("adjoint", adjoint);
                let inverted =
                    run(session, &inverse, std::slice::from_ref(&matrices)).remove(0).to_f64();
                for k in 0..count {
                    let a = &x[k * n * n..][..n * n];
                    let a = if adjoint { transpose(a, n, n) } else { a.to_vec() };
                    let got = matmul(&a, &solved[k * n * cols..][..n * cols], n, n, cols);
                    assert_small(
                        distance(&got, &b[k * n * cols..][..n * cols]),
                        bound,
                        &format!("solve {n} {adjoint}"),
                    );
                    let got = matmul(&a, &inverted[k * n * n..][..n * n], n, n, n);
                    assert_small(
                        distance(&got, &identity(n)),
                        bound,
                        &format!("inverse {n} {adjoint}"),
                    );
                }
            }

            // The determinant's reference: a float64 elimination.
            let log =
                run(session, &node("LogMatrixDeterminant", dtype), std::slice::from_ref(&matrices));
            let plain =
                run(session, &node("MatrixDeterminant", dtype), std::slice::from_ref(&matrices))
                    .remove(0)
                    .to_f64();
            for k in 0..count {
                let (sign, size) = eliminate(&x[k * n * n..][..n * n], n);
                assert_eq!(log[0].to_f64()[k], sign, "sign {n}");
                assert_small(
                    (log[1].to_f64()[k] - size).abs(),
                    unit * 1e-5 * (1.0 + size.abs()),
                    &format!("log {n}"),
                );
                if size < 80.0 || dtype == F64 {
                    let relative = plain[k] / (sign * size.exp()) - 1.0;
                    assert_small(
                        relative.abs(),
                        unit * 1e-5 * n as f64,
                        &format!("determinant {n}"),
                    );
                } else if size > 90.0 {
                    assert_eq!(plain[k], sign * f64::INFINITY);
                }
            }
            assert!(last.is_some());
        }
    });
}

/// Sign and logarithm of the determinant's absolute value.
fn eliminate(a: &[f64], n: usize) -> (f64, f64) {
    let mut a = a.to_vec();
    let (mut sign, mut size) = (1.0, 0.0);
    for k in 0..n {
        let p = (k..n).max_by(|i, j| a[i * n + k].abs().total_cmp(&a[j * n + k].abs())).unwrap();
        if p != k {
            sign = -sign;
            for j in 0..n {
                a.swap(k * n + j, p * n + j);
            }
        }
        let pivot = a[k * n + k];
        sign *= pivot.signum();
        size += pivot.abs().ln();
        for i in k + 1..n {
            let factor = a[i * n + k] / pivot;
            for j in k..n {
                a[i * n + j] -= factor * a[k * n + j];
            }
        }
    }
    (sign, size)
}

#[test]
fn determinants_at_the_edges() {
    for_each_type(|session, dtype| {
        let unit = unit(dtype);
        let mut both = |dims: &[usize], x: &[f64]| {
            let x = tensor(dtype, dims, x);
            let log = run(session, &node("LogMatrixDeterminant", dtype), std::slice::from_ref(&x));
            let plain = run(session, &node("MatrixDeterminant", dtype), &[x]);
            (plain[0].to_f64(), log[0].to_f64(), log[1].to_f64())
        };
        assert_eq!(both(&[0, 0], &[]), (vec![1.0], vec![1.0], vec![0.0]));
        assert_eq!(both(&[2, 0, 0], &[]).0, [1.0, 1.0]);
        assert!(both(&[0, 3, 3], &[]).0.is_empty());
        let (plain, sign, size) = both(&[2, 2], &[1.0, 2.0, 2.0, 4.0]);
        assert_eq!((plain[0], sign[0], size[0]), (0.0, 0.0, f64::NEG_INFINITY));
        // Products of a prefix of the pivots overflow or vanish; the determinant does not.
        let mut x = vec![0.0; 16];
        let large = if dtype == F64 { 1e300 } else { 1e30 };
        for (i, v) in [large, large, -1.0 / large, 10.0 / large].into_iter().enumerate() {
            x[i * 5] = v;
        }
        let (plain, sign, size) = both(&[4, 4], &x);
        assert_small((plain[0] / -10.0 - 1.0).abs(), unit * 1e-5, "product");
        assert_eq!(sign[0], -1.0);
        assert_small((size[0] - 10f64.ln()).abs(), unit * 1e-4, "log");
        // Infinities and NaNs.
        let (plain, sign, size) = both(&[2, 2], &[f64::NEG_INFINITY, 0.0, 0.0, 2.0]);
        assert_eq!((plain[0], sign[0], size[0]), (f64::NEG_INFINITY, -1.0, f64::INFINITY));
        let (plain, sign, size) = both(&[1, 1], &[f64::NAN]);
        assert!(plain[0].is_nan() && sign[0].is_nan() && size[0].is_nan());
        // Subnormal pivots, which count as zeros where the device flushes them.
        let (tiny, scale) = if dtype == F64 { (1e-310, 1e300) } else { (1e-40, 1e30) };
        let plain = both(&[2, 2], &[tiny, 0.0, 0.0, scale]).0[0];
        assert!(plain == 0.0 || (plain / (tiny * scale) - 1.0).abs() < 1e-4, "{plain:e}");
    });
}

#[test]
fn bad_input() {
    for_each_type(|session, dtype| {
        let singular = tensor(dtype, &[2, 2, 2], &[1.0, 0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 4.0]);
        let ones = |dims: &[usize]| tensor(dtype, dims, &vec![1.0; dims.iter().product()]);
        let lu = node("Lu", dtype).attr("output_idx_type", I32);
        let inverse = node("MatrixInverse", dtype).attr("adjoint", false);
        let solve = node("MatrixSolve", dtype).attr("adjoint", false);
        let triangular =
            node("MatrixTriangularSolve", dtype).attr("lower", true).attr("adjoint", false);
        let qr = node("Qr", dtype).attr("full_matrices", false);
        let cases: &[(&Node, &[HostTensor], &str)] = &[
            (&lu, std::slice::from_ref(&singular), "Input is not invertible."),
            (&inverse, std::slice::from_ref(&singular), "Input is not invertible."),
            (&solve, &[singular.clone(), ones(&[2, 2, 1])], "Input matrix is not invertible."),
            (&inverse, &[ones(&[2, 3])], "Input matrix must be square."),
            (&inverse, &[ones(&[2])], "Input tensor 0 must have rank >= 2, got 1"),
            (&lu, &[ones(&[2])], "Input tensor must have rank >= 2, got 1"),
            (&lu, &[ones(&[2, 3])], "Input matrix must be square."),
            (&node("Cholesky", dtype), &[ones(&[2, 3])], "Input matrix must be square."),
            (&node("MatrixDeterminant", dtype), &[ones(&[2, 3])], "Input matrix must be square."),
            (&qr, &[ones(&[3])], "Input tensor 0 must have rank >= 2, got 1"),
            (&solve, &[ones(&[2, 2]), ones(&[3, 1])], "Input matrix and rhs are incompatible."),
            (&solve, &[ones(&[2, 3]), ones(&[3, 1])], "First input (lhs) must be a square matrix."),
            (
                &solve,
                &[ones(&[3, 2, 2]), ones(&[2, 2, 1])],
                "All input tensors must have the same outer dimensions.",
            ),
            (
                &solve,
                &[ones(&[1, 2, 2]), ones(&[2, 1])],
                "All input tensors must have the same rank.",
            ),
            (
                &triangular,
                &[ones(&[2, 3]), ones(&[3, 1])],
                "In[0] matrices in the last dimensions must be square (3 =/= 2)",
            ),
            (
                &triangular,
                &[ones(&[2, 2]), ones(&[3, 1])],
                "In[0] mismatch In[1] shape: 2 vs. 3: [2,2] [3,1] 1 0",
            ),
            (
                &triangular,
                &[ones(&[3, 2, 2]), ones(&[2, 2, 1])],
                "In[0] and In[1] must have compatible batch dimensions: [3,2,2] vs. [2,2,1]",
            ),
            (&triangular, &[ones(&[2]), ones(&[2, 1])], "In[0] ndims must be >= 2: 1"),
        ];
        for (node, inputs, message) in cases {
            let got = failure(session, node, inputs);
            assert!(got.ends_with(message), "{got}, expected {message}");
        }
    });
}
