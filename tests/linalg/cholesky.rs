//! Cholesky.

use super::*;

#[test]
fn cholesky() {
    for_each_type(|session, dtype| {
        let unit = unit(dtype);
        for &n in SIZES {
            let count = if n < 20 { 3 } else { 2 };
            session.misalign = n % 2;
            let x = conditioned(count, n);
            let mut a = Vec::new();
            for b in 0..count {
                let x = &x[b * n * n..][..n * n];
                a.extend(
                    matmul(x, &transpose(x, n, n), n, n, n)
                        .into_iter()
                        .map(|v| f64::from(v as f32)),
                );
            }
            let out = run(session, &node("Cholesky", dtype), &[tensor(dtype, &[count, n, n], &a)])
                .remove(0)
                .to_f64();
            for b in 0..count {
                let l = &out[b * n * n..][..n * n];
                assert!(
                    (0..n * n).all(|t| t % n <= t / n || l[t] == 0.0),
                    "{n}: not lower triangular"
                );
                let error =
                    distance(&matmul(l, &transpose(l, n, n), n, n, n), &a[b * n * n..][..n * n]);
                assert_small(error, unit * 1e-6 * n as f64 * 10.0, &format!("cholesky {n}"));
            }
        }
    });
}

#[test]
fn cholesky_of_an_indefinite_matrix_is_nan() {
    for_each_type(|session, dtype| {
        let unit = unit(dtype);
        let x = tensor(dtype, &[2, 2, 2], &[1.0, 2.0, 2.0, 1.0, 4.0, 2.0, 2.0, 5.0]);
        let out = run(session, &node("Cholesky", dtype), &[x]).remove(0).to_f64();
        assert!(out[0].is_nan() && out[2].is_nan() && out[3].is_nan() && out[1] == 0.0, "{out:?}");
        assert_small(distance(&out[4..], &[2.0, 0.0, 1.0, 2.0]), unit * 1e-6, "the other matrix");
        // Beyond the first panel.
        let n = 100;
        let mut x = identity(n);
        x[n * n - 1] = -1.0;
        let out = run(session, &node("Cholesky", dtype), &[tensor(dtype, &[n, n], &x)])
            .remove(0)
            .to_f64();
        assert!(out[0].is_nan() && out[n * n - 1].is_nan() && out[1] == 0.0);
    });
}
