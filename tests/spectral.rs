//! Eigenvalues, singular values and tridiagonal systems: residuals and orthogonality in float64.

#[path = "numeric/noise.rs"]
mod noise;

use noise::noise;
use tensorflow_wgpu::DType::{self, F32, F64};
use tensorflow_wgpu::device::{Capabilities, Profile};
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{Error, HostTensor};

fn run(
    session: &mut Session,
    node: &Node,
    inputs: &[HostTensor],
) -> Result<Vec<HostTensor>, Error> {
    let inputs: Vec<Input> = inputs.iter().cloned().map(Input::from).collect();
    session.run(node, &inputs)
}

fn types(session: &Session) -> Vec<DType> {
    [F32, F64].into_iter().filter(|t| session.runs(*t)).collect()
}

fn epsilon(dtype: DType) -> f64 {
    if dtype == F64 { f64::EPSILON } else { f64::from(f32::EPSILON) }
}

/// The largest of `|a - b|`; NaN counts as infinite.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(x, y)| if (x - y).is_nan() { f64::INFINITY } else { (x - y).abs() })
        .fold(0.0, f64::max)
}

/// `a` (m x k) times diag(s) times the transpose of `b` (n x k).
fn product(
    a: &[f64],
    s: &[f64],
    b: &[f64],
    m: usize,
    n: usize,
    k: usize,
    stride: (usize, usize),
) -> Vec<f64> {
    let mut out = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            out[i * n + j] = (0..k).map(|c| a[i * stride.0 + c] * s[c] * b[j * stride.1 + c]).sum();
        }
    }
    out
}

/// How far the columns of `q` (m x n) deviate from orthonormal.
fn skew(q: &[f64], m: usize, n: usize) -> f64 {
    let dot = |a: usize, b: usize| (0..m).map(|i| q[i * n + a] * q[i * n + b]).sum::<f64>();
    let pairs = (0..n).flat_map(|a| (0..n).map(move |b| (a, b)));
    pairs.map(|(a, b)| (dot(a, b) - f64::from(u8::from(a == b))).abs()).fold(0.0, f64::max)
}

#[test]
fn eigenvalues_and_vectors() {
    let mut session = Session::shared().unwrap();
    for dtype in types(&session) {
        for (case, &(count, n)) in
            [(1, 1), (2, 2), (300, 3), (2, 16), (1, 17), (2, 33), (1, 90)].iter().enumerate()
        {
            session.misalign = case % 2;
            let mut x = noise(count * n * n, n as u64);
            for b in 0..count {
                for i in 0..n {
                    for j in 0..i {
                        // Only the lower triangle counts: the upper one is left as noise.
                        x[(b * n + i) * n + j] += 0.1 * (i % 3) as f64;
                    }
                }
            }
            let input = HostTensor::floats(dtype, &[count, n, n], &x);
            let x = input.to_f64();
            let node = Node::new("SelfAdjointEigV2").attr("T", dtype);
            let out = run(
                &mut session,
                &node.clone().attr("compute_v", true),
                std::slice::from_ref(&input),
            )
            .unwrap();
            let (e, v) = (out[0].to_f64(), out[1].to_f64());
            let values = run(&mut session, &node.attr("compute_v", false), &[input]).unwrap();
            assert_eq!(values[0], out[0]);
            assert_eq!(values[1].dims.len(), 0);
            let bound = 30.0 * n as f64 * epsilon(dtype);
            for b in 0..count {
                let (e, v) = (&e[b * n..][..n], &v[b * n * n..][..n * n]);
                let a: Vec<f64> = (0..n * n)
                    .map(|t| x[(b * n + (t / n).max(t % n)) * n + (t / n).min(t % n)])
                    .collect();
                assert!(e.windows(2).all(|w| w[0] <= w[1]), "{e:?}");
                let residual = distance(&product(v, e, v, n, n, n, (n, n)), &a);
                assert!(residual <= bound, "{dtype:?} {n}: residual {residual:e}");
                let skew = skew(v, n, n);
                assert!(skew <= bound, "{dtype:?} {n}: skew {skew:e}");
            }
        }
    }
}

#[test]
fn repeated_and_signed_eigenvalues() {
    let mut session = Session::shared().unwrap();
    let node = Node::new("SelfAdjointEigV2").attr("T", F32).attr("compute_v", true);
    let x =
        HostTensor::f32(&[3, 2, 2], &[0.0, 9.0, 1.0, 0.0, 5.0, 0.0, 0.0, 5.0, 0.0, 0.0, 0.0, 0.0]);
    let out = run(&mut session, &node, &[x]).unwrap();
    assert!(distance(&out[0].to_f64(), &[-1.0, 1.0, 5.0, 5.0, 0.0, 0.0]) < 1e-6);
    let message = run(&mut session, &node, &[HostTensor::f32(&[2, 3], &[0.0; 6])]);
    assert!(matches!(message, Err(Error::InvalidArgument(m)) if m.contains("must be square")));
}

#[test]
fn singular_values_and_vectors() {
    let mut session = Session::shared().unwrap();
    let cases = [
        (1, 1, 1),
        (2, 3, 2),
        (300, 2, 3),
        (1, 17, 16),
        (2, 33, 40),
        (1, 70, 20),
        (1, 300, 3),
        (1, 3, 0),
    ];
    for dtype in types(&session) {
        for (case, &(count, m, n)) in cases.iter().enumerate() {
            session.misalign = case % 2;
            for full in [false, true] {
                let input = HostTensor::floats(
                    dtype,
                    &[count, m, n],
                    &noise(count * m * n, (m * n) as u64),
                );
                check_svd(&mut session, &input, full);
            }
        }
    }
}

#[test]
fn singular_values_of_deficient_huge_and_tiny_matrices() {
    check_deficient(Session::shared().unwrap());
}

/// On Metal a flag in workgroup memory decides no branch.
#[test]
fn singular_vectors_without_flags_in_workgroup_memory() {
    let own = Session::shared().unwrap().device.profile();
    let capabilities = Capabilities { workgroup_flags: false, ..own.capabilities };
    check_deficient(Session::under(Profile { capabilities, ..own }).unwrap());
}

fn check_deficient(mut session: Session) {
    for dtype in types(&session) {
        for scale in [1.0, 1e30, 1e-30] {
            // Rank 2, a zero matrix, and a diagonal one.
            let (a, b) = (noise(2 * 6, 1), noise(2 * 5, 2));
            let mut x: Vec<f64> = (0..30)
                .map(|t| (0..2).map(|c| a[c * 6 + t / 5] * b[c * 5 + t % 5]).sum())
                .collect();
            x.extend([0.0; 30]);
            x.extend((0..30).map(|t| if t / 5 == t % 5 { 3.0 - (t % 5) as f64 } else { 0.0 }));
            let x: Vec<f64> = x.into_iter().map(|v| v * scale).collect();
            for full in [false, true] {
                check_svd(&mut session, &HostTensor::floats(dtype, &[3, 6, 5], &x), full);
                check_svd(&mut session, &HostTensor::floats(dtype, &[3, 5, 6], &x), full);
            }
        }
    }
}

fn check_svd(session: &mut Session, input: &HostTensor, full: bool) {
    let (dtype, x) = (input.dtype, input.to_f64());
    let [count, m, n] = input.dims[..] else { panic!() };
    let k = m.min(n);
    let node = Node::new("Svd").attr("T", dtype).attr("full_matrices", full);
    let out =
        run(session, &node.clone().attr("compute_uv", true), std::slice::from_ref(input)).unwrap();
    let only = run(session, &node.attr("compute_uv", false), std::slice::from_ref(input)).unwrap();
    assert_eq!(only[0], out[0]);
    let (u_cols, v_cols) = if full { (m, n) } else { (k, k) };
    assert_eq!(
        (&out[1].dims[..], &out[2].dims[..]),
        (&[count, m, u_cols][..], &[count, n, v_cols][..])
    );
    let (s, u, v) = (out[0].to_f64(), out[1].to_f64(), out[2].to_f64());
    let bound = 30.0 * m.max(n) as f64 * epsilon(dtype);
    for b in 0..count {
        let s = &s[b * k..][..k];
        let (u, v) = (&u[b * m * u_cols..][..m * u_cols], &v[b * n * v_cols..][..n * v_cols]);
        assert!(s.windows(2).all(|w| w[0] >= w[1]) && s.iter().all(|v| *v >= 0.0), "{s:?}");
        let size = s.first().copied().unwrap_or(0.0);
        let residual =
            distance(&product(u, s, v, m, n, k, (u_cols, v_cols)), &x[b * m * n..][..m * n]);
        assert!(residual <= bound * size, "{dtype:?} {m} x {n}: residual {residual:e} of {size:e}");
        let skews = (skew(u, m, u_cols), skew(v, n, v_cols));
        assert!(
            skews.0 <= bound && skews.1 <= bound,
            "{dtype:?} {m} x {n}, full {full}: skew {skews:?}, {s:?}"
        );
    }
}

#[test]
fn tridiagonal_systems() {
    let mut session = Session::shared().unwrap();
    for dtype in types(&session) {
        for (case, &(count, n, cols)) in
            [(1, 1, 1), (2, 2, 3), (3, 7, 2), (70, 5, 4), (1, 40_000, 1)].iter().enumerate()
        {
            session.misalign = case % 2;
            let mut a = noise(count * 3 * n, n as u64);
            for (t, value) in a.iter_mut().enumerate() {
                // A heavy diagonal; where n is small every third pivot is zero, so that rows must
                // be exchanged.
                if t / n % 3 == 1 {
                    *value = if n < 10 && t % 3 == 0 { 0.0 } else { 4.0 + *value };
                }
            }
            let x = noise(count * n * cols, 7);
            let (a, x) = (
                HostTensor::floats(dtype, &[count, 3, n], &a),
                HostTensor::floats(dtype, &[count, n, cols], &x),
            );
            let part = |row: usize| {
                let all = a.to_f64();
                let values: Vec<f64> =
                    (0..count).flat_map(|b| all[(b * 3 + row) * n..][..n].to_vec()).collect();
                HostTensor::floats(dtype, &[count, 1, n], &values)
            };
            let multiply = Node::new("TridiagonalMatMul").attr("T", dtype);
            let y = run(&mut session, &multiply, &[part(0), part(1), part(2), x.clone()])
                .unwrap()
                .remove(0);
            let (d, v) = (a.to_f64(), x.to_f64());
            let want: Vec<f64> = (0..count * n * cols)
                .map(|t| {
                    let (b, i, c) = (t / cols / n, t / cols % n, t % cols);
                    let at = |i: usize| v[(b * n + i) * cols + c];
                    let mut sum = d[(b * 3 + 1) * n + i] * at(i);
                    if i > 0 {
                        sum += d[(b * 3 + 2) * n + i] * at(i - 1);
                    }
                    if i + 1 < n {
                        sum += d[b * 3 * n + i] * at(i + 1);
                    }
                    sum
                })
                .collect();
            assert!(distance(&y.to_f64(), &want) <= 20.0 * epsilon(dtype));
            let solve =
                Node::new("TridiagonalSolve").attr("T", dtype).attr("perturb_singular", false);
            let got =
                run(&mut session, &solve.attr("partial_pivoting", true), &[a.clone(), y.clone()])
                    .unwrap()
                    .remove(0);
            let got = HostTensor::floats(dtype, &[count, n, cols], &got.to_f64());
            let back =
                run(&mut session, &multiply, &[part(0), part(1), part(2), got]).unwrap().remove(0);
            let residual = distance(&back.to_f64(), &y.to_f64());
            assert!(residual <= 2000.0 * epsilon(dtype), "{dtype:?} {n}: {residual:e}");
        }
    }
}

#[test]
fn tridiagonal_errors() {
    let mut session = Session::shared().unwrap();
    let solve = Node::new("TridiagonalSolve")
        .attr("T", F32)
        .attr("perturb_singular", false)
        .attr("partial_pivoting", true);
    let zeros = |dims: &[usize]| HostTensor::f32(dims, &vec![0.0; dims.iter().product()]);
    for (a, b, want) in [
        (zeros(&[2, 3]), zeros(&[3, 1]), "got 2 rows"),
        (zeros(&[3, 3]), zeros(&[4, 1]), "got 3 and 4"),
        (zeros(&[2, 3, 3]), zeros(&[3, 3, 1]), "same outer dimensions"),
        (zeros(&[3, 3]), zeros(&[3]), "same rank"),
    ] {
        let got = run(&mut session, &solve, &[a, b]);
        assert!(matches!(&got, Err(Error::InvalidArgument(m)) if m.contains(want)), "{got:?}");
    }
}
