//! Sparse tensors against plain Rust.

use tensorflow_wgpu::DType::{self, F16, F32, F64, I32, I64};
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{Error, HostTensor};

fn indices(dtype: DType, dims: &[usize], values: &[i64]) -> HostTensor {
    match dtype {
        I64 => HostTensor::i64(dims, values),
        _ => HostTensor::i32(dims, &values.iter().map(|v| *v as i32).collect::<Vec<_>>()),
    }
}

fn dense(session: &mut Session, inputs: [HostTensor; 4], index: DType) -> Result<HostTensor, Error> {
    let [at, dims, values, default] = inputs;
    let node =
        Node::new("SparseToDense").attr("T", values.dtype).attr("Tindices", index).attr("validate_indices", true);
    let inputs = [Input::from(at), Input::from(dims), Input::from(values), Input::from(default)];
    Ok(session.run(&node, &inputs)?.remove(0))
}

#[test]
fn to_dense() {
    let mut session = Session::shared().unwrap();
    for index in [I32, I64] {
        for (at_dims, at, shape, values, want) in [
            (
                &[3, 2][..],
                &[0, 1, 1, 0, 1, 2][..],
                &[2, 3][..],
                HostTensor::f32(&[3], &[5.0, 6.0, 7.0]),
                vec![9.0, 5.0, 9.0, 6.0, 9.0, 7.0],
            ),
            (&[2], &[3, 1], &[4], HostTensor::f32(&[], &[2.0]), vec![9.0, 2.0, 9.0, 2.0]),
            (&[], &[2], &[3], HostTensor::f32(&[], &[2.0]), vec![9.0, 9.0, 2.0]),
            // Out of range: ignored.
            (&[2], &[7, -1], &[2], HostTensor::f32(&[], &[2.0]), vec![9.0, 9.0]),
            (&[0, 2], &[], &[1, 2], HostTensor::f32(&[0], &[]), vec![9.0, 9.0]),
        ] {
            let dims: Vec<i64> = shape.to_vec();
            let inputs = [
                indices(index, at_dims, at),
                indices(index, &[dims.len()], &dims),
                values,
                HostTensor::f32(&[], &[9.0]),
            ];
            assert_eq!(dense(&mut session, inputs, index).unwrap().to_f64(), want);
        }
    }
    let bad = [
        indices(I32, &[2, 3], &[0; 6]),
        indices(I32, &[2], &[2, 2]),
        HostTensor::f32(&[2], &[0.0; 2]),
        HostTensor::f32(&[], &[0.0]),
    ];
    let got = dense(&mut session, bad, I32);
    assert!(
        matches!(&got, Err(Error::InvalidArgument(m)) if m.contains("incorrect number of elements: 2 should be: 3")),
        "{got:?}"
    );
}

#[test]
fn products() {
    let mut session = Session::shared().unwrap();
    let (m, k, n) = (7, 300, 5);
    for dtype in [F32, F16, F64].into_iter().filter(|t| session.device.capabilities().supports(*t)).collect::<Vec<_>>()
    {
        for index in [I32, I64] {
            for (adjoint_a, adjoint_b) in [(false, false), (true, false), (false, true), (true, true)] {
                // Duplicates, several elements in a row, rows without any.
                let places: Vec<(usize, usize)> = (0..200).map(|i| (i * 5 % m / 2 * 2, i * 7 % k)).collect();
                let a: Vec<f64> = (0..200).map(|i| f64::from(i % 5 - 2)).collect();
                let b: Vec<f64> = (0..k * n).map(|i| ((i * 3) % 7) as f64 - 3.0).collect();
                let mut want = vec![0.0; m * n];
                for (&(i, c), v) in places.iter().zip(&a) {
                    for j in 0..n {
                        want[i * n + j] += v * b[c * n + j];
                    }
                }
                let at: Vec<i64> = places
                    .iter()
                    .flat_map(|&(i, c)| if adjoint_a { [c as i64, i as i64] } else { [i as i64, c as i64] })
                    .collect();
                let dims = if adjoint_a { [k as i64, m as i64] } else { [m as i64, k as i64] };
                let b = if adjoint_b {
                    HostTensor::floats(dtype, &[n, k], &(0..k * n).map(|t| b[t % k * n + t / k]).collect::<Vec<_>>())
                } else {
                    HostTensor::floats(dtype, &[k, n], &b)
                };
                let node = Node::new("SparseTensorDenseMatMul").attr("T", dtype).attr("Tindices", index);
                let node = node.attr("adjoint_a", adjoint_a).attr("adjoint_b", adjoint_b);
                let inputs = [
                    Input::from(indices(index, &[200, 2], &at)),
                    Input::from(HostTensor::floats(dtype, &[200], &a)),
                    Input::from(HostTensor::i64(&[2], &dims)),
                    Input::from(b),
                ];
                assert_eq!(session.run(&node, &inputs).unwrap()[0].to_f64(), want, "{dtype:?} {adjoint_a} {adjoint_b}");
            }
        }
    }
}
