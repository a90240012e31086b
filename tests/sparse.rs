//! Sparse tensors against plain Rust.

use tensorflow_wgpu::DType::{self, C64, C128, F16, F32, F64, I32, I64};
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{Error, HostTensor};

fn indices(dtype: DType, dims: &[usize], values: &[i64]) -> HostTensor {
    match dtype {
        I64 => HostTensor::i64(dims, values),
        _ => HostTensor::i32(dims, &values.iter().map(|v| *v as i32).collect::<Vec<_>>()),
    }
}

fn dense(
    session: &mut Session,
    inputs: [HostTensor; 4],
    index: DType,
) -> Result<HostTensor, Error> {
    let [at, dims, values, default] = inputs;
    let node = Node::new("SparseToDense")
        .attr("T", values.dtype)
        .attr("Tindices", index)
        .attr("validate_indices", true);
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
        matches!(&got, Err(Error::InvalidArgument(m))
            if m.contains("incorrect number of elements: 2 should be: 3")),
        "{got:?}"
    );
}

#[test]
fn products() {
    let mut session = Session::shared().unwrap();
    let (m, k, n) = (7, 300, 5);
    for dtype in [F32, F16, F64].into_iter().filter(|t| session.runs(*t)).collect::<Vec<_>>() {
        for index in [I32, I64] {
            for (adjoint_a, adjoint_b) in
                [(false, false), (true, false), (false, true), (true, true)]
            {
                // Duplicates, several elements in a row, rows without any.
                let places: Vec<(usize, usize)> =
                    (0..200).map(|i| (i * 5 % m / 2 * 2, i * 7 % k)).collect();
                let a: Vec<f64> = (0..200).map(|i| f64::from(i % 5 - 2)).collect();
                let b: Vec<f64> = (0..k * n).map(|i| ((i * 3) % 7) as f64 - 3.0).collect();
                let mut want = vec![0.0; m * n];
                for (&(i, c), v) in places.iter().zip(&a) {
                    for j in 0..n {
                        want[i * n + j] += v * b[c * n + j];
                    }
                }
                let at: Vec<i64> =
                    places
                        .iter()
                        .flat_map(|&(i, c)| {
                            if adjoint_a { [c as i64, i as i64] } else { [i as i64, c as i64] }
                        })
                        .collect();
                let dims = if adjoint_a { [k as i64, m as i64] } else { [m as i64, k as i64] };
                let b = if adjoint_b {
                    HostTensor::floats(
                        dtype,
                        &[n, k],
                        &(0..k * n).map(|t| b[t % k * n + t / k]).collect::<Vec<_>>(),
                    )
                } else {
                    HostTensor::floats(dtype, &[k, n], &b)
                };
                let node =
                    Node::new("SparseTensorDenseMatMul").attr("T", dtype).attr("Tindices", index);
                let node = node.attr("adjoint_a", adjoint_a).attr("adjoint_b", adjoint_b);
                let inputs = [
                    Input::from(indices(index, &[200, 2], &at)),
                    Input::from(HostTensor::floats(dtype, &[200], &a)),
                    Input::from(HostTensor::i64(&[2], &dims)),
                    Input::from(b),
                ];
                assert_eq!(
                    session.run(&node, &inputs).unwrap()[0].to_f64(),
                    want,
                    "{dtype:?} {adjoint_a} {adjoint_b}"
                );
            }
        }
    }
}

#[test]
fn complex_products() {
    let mut session = Session::shared().unwrap();
    for dtype in [C64, C128] {
        if !session.runs(dtype) {
            continue;
        }
        // Whole numbers, whose products are exact; (1, 2) is there twice.
        let number = |i: usize| [(i % 7) as f64 - 3.0, (i % 5) as f64 - 2.0];
        let times =
            |a: [f64; 2], b: [f64; 2]| [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]];
        let tensor = |dims: &[usize], v: &[[f64; 2]]| match dtype {
            C64 => {
                let v: Vec<_> = v.iter().map(|z| z.map(|x| x as f32)).collect();
                HostTensor::of(dtype, dims, &v)
            }
            _ => HostTensor::of(dtype, dims, v),
        };
        let places = [[1, 2], [0, 0], [1, 2], [3, 1]];
        for (adjoint_a, adjoint_b) in [(false, false), (true, false), (false, true), (true, true)] {
            let (m, k, n) = if adjoint_a { (3, 4, 2) } else { (4, 3, 2) };
            let a: Vec<_> = (0..4).map(|i| number(3 * i + 1)).collect();
            let b: Vec<_> = (0..k * n).map(number).collect();
            let mut want = vec![[0.0; 2]; m * n];
            for ([row, column], z) in places.iter().zip(&a) {
                let (i, c, z) =
                    if adjoint_a { (column, row, [z[0], -z[1]]) } else { (row, column, *z) };
                for j in 0..n {
                    let v = if adjoint_b { b[j * k + c] } else { b[c * n + j] };
                    let v = times(z, if adjoint_b { [v[0], -v[1]] } else { v });
                    let sum = &mut want[i * n + j];
                    *sum = [sum[0] + v[0], sum[1] + v[1]];
                }
            }
            let node = Node::new("SparseTensorDenseMatMul").attr("T", dtype).attr("Tindices", I64);
            let at: Vec<i64> = places.iter().flatten().map(|x| *x as i64).collect();
            let inputs = [
                Input::from(indices(I64, &[4, 2], &at)),
                Input::from(tensor(&[4], &a)),
                Input::from(HostTensor::i64(&[2], &[4, 3])),
                Input::from(tensor(&if adjoint_b { [n, k] } else { [k, n] }, &b)),
            ];
            let node = node.attr("adjoint_a", adjoint_a).attr("adjoint_b", adjoint_b);
            let got = session.run(&node, &inputs).unwrap().remove(0);
            assert_eq!(got, tensor(&[m, n], &want), "{dtype:?} {adjoint_a} {adjoint_b}");
        }
    }
}

/// Runs the node and returns its outputs.
fn run(
    session: &mut Session,
    node: Node,
    inputs: Vec<HostTensor>,
) -> Result<Vec<HostTensor>, Error> {
    session.run(&node, &inputs.into_iter().map(Input::from).collect::<Vec<_>>())
}

/// 700 coordinates of a tensor of `dims`, all different and not in order, with their position in
/// the dense tensor.
fn scattered(dims: [i64; 3]) -> (Vec<i64>, Vec<i64>) {
    let size = dims.iter().product::<i64>();
    let at: Vec<i64> = (0..700).map(|i| (i * 7_919 + 13) % 700 * (size / 700)).collect();
    let rows = at
        .iter()
        .flat_map(|p| [p / (dims[1] * dims[2]), p / dims[2] % dims[1], p % dims[2]])
        .collect();
    (rows, at)
}

fn delinearized(at: &[i64], dims: &[i64]) -> Vec<i64> {
    at.iter()
        .flat_map(|p| {
            (0..dims.len()).map(move |d| p / dims[d + 1..].iter().product::<i64>() % dims[d])
        })
        .collect()
}

#[test]
fn coordinates() {
    let mut session = Session::shared().unwrap();
    if !session.runs(I64) {
        return;
    }
    for dims in [[10, 14, 6], [1 << 20, 3 << 18, 1 << 21]] {
        let (rows, at) = scattered(dims);
        let values: Vec<f32> = (0..700).map(|i| i as f32).collect();
        let (matrix, vector) =
            (HostTensor::i64(&[700, 3], &rows), HostTensor::f32(&[700], &values));
        let shape = HostTensor::i64(&[3], &dims);
        let new = [dims[0] / 2, dims[1] * 2, 2, dims[2] / 2];
        let inputs = vec![
            matrix.clone(),
            shape.clone(),
            HostTensor::i64(&[4], &[new[0], -1, new[2], new[3]]),
        ];
        let got = run(&mut session, Node::new("SparseReshape"), inputs).unwrap();
        assert_eq!(got[0].to_i64().unwrap(), delinearized(&at, &new));
        assert_eq!(got[1].to_i64().unwrap(), new);

        let mut sorted: Vec<usize> = (0..700).collect();
        sorted.sort_by_key(|i| at[*i]);
        let node = Node::new("SparseReorder").attr("T", F32);
        let got =
            run(&mut session, node, vec![matrix.clone(), vector.clone(), shape.clone()]).unwrap();
        let ordered: Vec<i64> = sorted.iter().map(|i| at[*i]).collect();
        assert_eq!(got[0].to_i64().unwrap(), delinearized(&ordered, &dims));
        assert_eq!(got[1].to_f64(), sorted.iter().map(|i| *i as f64).collect::<Vec<_>>());

        // Of a tensor split in parts the rows are those of each part, and concatenating the parts
        // orders them all.
        let node = Node::new("SparseSplit").attr("T", F32).attr("num_split", 4i64);
        let inputs =
            vec![HostTensor::i64(&[], &[1]), got[0].clone(), got[1].clone(), shape.clone()];
        let parts = run(&mut session, node, inputs).unwrap();
        assert_eq!(parts[..4].iter().map(|t| t.dims[0]).sum::<usize>(), 700);
        let node =
            Node::new("SparseConcat").attr("T", F32).attr("N", 4i64).attr("concat_dim", -2i64);
        let whole = run(&mut session, node, parts).unwrap();
        assert_eq!(whole[0].to_i64().unwrap(), got[0].to_i64().unwrap());
        assert_eq!(whole[1].to_f64(), got[1].to_f64());
        assert_eq!(whole[2].to_i64().unwrap(), dims);
    }
    let bad = vec![
        HostTensor::i64(&[1, 2], &[0, 0]),
        HostTensor::i64(&[2], &[4, 6]),
        HostTensor::i64(&[1], &[5]),
    ];
    let got = run(&mut session, Node::new("SparseReshape"), bad);
    assert!(
        matches!(&got, Err(Error::InvalidArgument(m)) if m.contains("the requested shape has 5")),
        "{got:?}"
    );
}

#[test]
fn a_concatenation_beyond_all_numbers_is_refused() {
    let mut session = Session::shared().unwrap();
    if !session.runs(I64) {
        return;
    }
    // Four of the sums together are 0 again modulo 2^64.
    for (n, extent) in [(4, 1_i64 << 62), (2, 1 << 62), (3, i64::MAX), (2, i64::MAX)] {
        let node =
            Node::new("SparseConcat").attr("T", F32).attr("N", n as i64).attr("concat_dim", 0_i64);
        let all = |t: HostTensor| vec![t; n];
        let inputs = [
            all(HostTensor::i64(&[1, 2], &[0, 0])),
            all(HostTensor::f32(&[1], &[1.0])),
            all(HostTensor::i64(&[2], &[extent, 1])),
        ];
        let got = run(&mut session, node, inputs.concat());
        assert!(
            matches!(&got, Err(Error::InvalidArgument(m)) if m.contains("2**63 - 1")),
            "{n} of {extent}: {got:?}"
        );
    }
}

#[test]
fn slices_and_empty_rows() {
    let mut session = Session::shared().unwrap();
    if !session.runs(I64) {
        return;
    }
    let matrix = HostTensor::i64(&[4, 2], &[0, 3, 2, 1, 2, 4, 5, 0]);
    let values = HostTensor::f32(&[4], &[1.0, 2.0, 3.0, 4.0]);
    let dims = HostTensor::i64(&[2], &[7, 5]);
    let (start, size) = (HostTensor::i64(&[2], &[1, 1]), HostTensor::i64(&[2], &[9, 4]));
    let node = Node::new("SparseSlice").attr("T", F32);
    let got = run(
        &mut session,
        node,
        vec![matrix.clone(), values.clone(), dims.clone(), start.clone(), size],
    )
    .unwrap();
    assert_eq!(got[0].to_i64().unwrap(), [1, 0, 1, 3]);
    assert_eq!(got[1].to_f64(), [2.0, 3.0]);
    assert_eq!(got[2].to_i64().unwrap(), [6, 4]);
    let node = Node::new("SparseSliceGrad").attr("T", F32);
    let inputs = vec![HostTensor::f32(&[2], &[7.0, 8.0]), matrix.clone(), start, got[0].clone()];
    assert_eq!(run(&mut session, node, inputs).unwrap()[0].to_f64(), [0.0, 7.0, 8.0, 0.0]);

    let node = Node::new("SparseFillEmptyRows").attr("T", F32);
    let got =
        run(&mut session, node, vec![matrix, values, dims, HostTensor::f32(&[], &[9.0])]).unwrap();
    assert_eq!(got[0].to_i64().unwrap(), [0, 3, 1, 0, 2, 1, 2, 4, 3, 0, 4, 0, 5, 0, 6, 0]);
    assert_eq!(got[1].to_f64(), [1.0, 9.0, 2.0, 3.0, 9.0, 9.0, 4.0, 9.0]);
    assert_eq!(got[3].to_i64().unwrap(), [0, 2, 3, 6]);
    let node = Node::new("SparseFillEmptyRowsGrad").attr("T", F32);
    let inputs =
        vec![got[3].clone(), HostTensor::f32(&[8], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])];
    let got = run(&mut session, node, inputs).unwrap();
    assert_eq!(got[0].to_f64(), [1.0, 3.0, 4.0, 7.0]);
    assert_eq!(got[1].to_f64(), [21.0]);
}
