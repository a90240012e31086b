//! Qr.

use super::*;
use tensorflow_wgpu::DType::F16;

/// Computed in float32: the result is rounded once.
#[test]
fn qr_of_half() {
    let mut session = Session::shared().unwrap();
    for (m, n) in [(1, 1), (5, 3), (3, 5), (33, 20), (0, 3)] {
        for full in [false, true] {
            let x = HostTensor::floats(F16, &[2, m, n], &noise(2 * m * n, 3));
            let wide = HostTensor::floats(F32, &[2, m, n], &x.to_f64());
            let op = |dtype| node("Qr", dtype).attr("full_matrices", full);
            let got = run(&mut session, &op(F16), &[x]);
            let want = run(&mut session, &op(F32), &[wide]);
            for (got, want) in got.iter().zip(&want) {
                assert_eq!((got.dtype, &got.dims), (F16, &want.dims));
                assert_eq!(*got, HostTensor::floats(F16, &want.dims, &want.to_f64()));
            }
        }
    }
}

#[test]
fn qr() {
    qr_on(Session::shared().unwrap());
}

fn qr_on(session: Session) {
    for_each_type_on(session, |session, dtype| {
        let unit = unit(dtype);
        let cases: &[(usize, usize, usize)] = &[
            (1, 1, 1),
            (3, 3, 3),
            (2, 5, 2),
            (2, 2, 5),
            (1, 64, 64),
            (1, 70, 33),
            (2, 33, 70),
            (1, 130, 130),
            (1, 300, 7),
            (300, 4, 3),
        ];
        for (case, &(count, m, n)) in cases.iter().enumerate() {
            session.misalign = case % 2;
            for full in [false, true] {
                let x: Vec<f64> = noise(count * m * n, (m * 100 + n) as u64)
                    .into_iter()
                    .map(|v| f64::from(v as f32))
                    .collect();
                let out = run(
                    session,
                    &node("Qr", dtype).attr("full_matrices", full),
                    &[tensor(dtype, &[count, m, n], &x)],
                );
                let inner = if full { m } else { m.min(n) };
                assert_eq!(out[0].dims[..], [count, m, inner]);
                assert_eq!(out[1].dims[..], [count, inner, n]);
                let (q, r) = (out[0].to_f64(), out[1].to_f64());
                for b in 0..count {
                    let (q, r) =
                        (&q[b * m * inner..][..m * inner], &r[b * inner * n..][..inner * n]);
                    let bound = unit * 1e-6 * (m.max(n) as f64).sqrt() * 2.0;
                    let what = format!("{m}x{n} full {full}");
                    let product = matmul(&transpose(q, m, inner), q, inner, m, inner);
                    assert_small(
                        distance(&product, &identity(inner)),
                        bound,
                        &format!("orthogonality {what}"),
                    );
                    assert_small(
                        distance(&matmul(q, r, m, inner, n), &x[b * m * n..][..m * n]),
                        bound,
                        &what,
                    );
                    assert!(
                        (0..inner * n).all(|t| t / n <= t % n || r[t] == 0.0),
                        "{what}: R is not upper triangular"
                    );
                    // LAPACK's sign: the first diagonal element is opposite to the column's head.
                    if m > 1 {
                        assert!(r[0] * x[b * m * n] <= 0.0, "{what}: sign");
                    }
                }
            }
        }
    });
}

#[test]
fn qr_by_the_programs_of_gpus() {
    qr_on(Session::under(Profile::NVIDIA).unwrap());
}

#[test]
fn qr_of_columns_that_are_already_zero_or_huge() {
    for_each_type(|session, dtype| {
        let unit = unit(dtype);
        let n = node("Qr", dtype).attr("full_matrices", false);
        let out = run(session, &n, &[tensor(dtype, &[3, 2], &[2.0, 1.0, 0.0, 3.0, 0.0, 4.0])]);
        let want = [1.0, 0.0, 0.0, -0.6, 0.0, -0.8];
        assert_small(distance(&out[0].to_f64(), &want), unit * 1e-6, "q");
        assert_small(distance(&out[1].to_f64(), &[2.0, 1.0, 0.0, -5.0]), unit * 1e-5, "r");
        for power in if dtype == F64 { [300, -300] } else { [30, -30] } {
            let scale = 10f64.powi(power);
            let out = run(session, &n, &[tensor(dtype, &[2, 1], &[3.0 * scale, 4.0 * scale])]);
            assert_small(
                (out[1].to_f64()[0] / (5.0 * scale) + 1.0).abs(),
                unit * 1e-6,
                "squares overflow or vanish",
            );
        }
        let out = run(session, &n, &[tensor(dtype, &[2, 1], &[1.0, f64::NAN])]);
        assert!(out[1].to_f64()[0].is_nan(), "a NaN below the diagonal is lost");
        let out = run(
            session,
            &node("Qr", dtype).attr("full_matrices", true),
            &[tensor(dtype, &[2, 0], &[])],
        );
        assert_eq!(out[0].to_f64(), identity(2));
        assert_eq!(out[1].dims[..], [2, 0]);
        let out = run(session, &n, &[tensor(dtype, &[0, 3], &[])]);
        assert_eq!((out[0].dims.to_vec(), out[1].dims.to_vec()), (vec![0, 0], vec![0, 3]));
    });
}
