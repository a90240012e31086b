//! Ops that process some items at a time if tensors exceed a binding: the results are the same as
//! if all fit.

#[path = "numeric/bindings.rs"]
mod bindings;

use tensorflow_wgpu::DType::{self, *};
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{Error, HostTensor};

/// Numbers in [0, 1) without a short period.
fn numbers(dtype: DType, dims: &[usize], seed: usize) -> HostTensor {
    let n: usize = dims.iter().product();
    let values: Vec<f64> =
        (0..n).map(|i| ((i + 31 * seed) * 7919 % 1009) as f64 / 1009.0).collect();
    HostTensor::floats(dtype, dims, &values)
}

/// Well conditioned matrices, which are symmetric.
fn matrices(dtype: DType, batch: &[usize], n: usize) -> HostTensor {
    let count: usize = batch.iter().product();
    let element = |z: usize, i: usize, j: usize| {
        ((z * 5 + i.min(j) * 3 + i.max(j)) % 11) as f64 / 11.0
            + if i == j { (2 * n + i) as f64 } else { 0.0 }
    };
    let values: Vec<f64> =
        (0..count * n * n).map(|k| element(k / n / n, k / n % n, k % n)).collect();
    HostTensor::floats(dtype, &[batch, &[n, n]].concat(), &values)
}

/// Runs a node on the adapter and on a device of small bindings.
fn check(most: u64, node: &Node, inputs: &[HostTensor]) {
    let inputs: Vec<Input> = inputs.iter().cloned().map(Input::from).collect();
    let want =
        Session::shared().unwrap().run(node, &inputs).unwrap_or_else(|e| panic!("{node:?}: {e}"));
    let got =
        bindings::session_of(most).run(node, &inputs).unwrap_or_else(|e| panic!("{node:?}: {e}"));
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(&want) {
        assert_eq!((got.dtype, &got.dims), (want.dtype, &want.dims), "{node:?}");
        for (i, (g, w)) in parts(got).iter().zip(parts(want)).enumerate() {
            assert!(
                (g - w).abs() <= 1e-5 * w.abs().max(1.0),
                "{node:?}: element {i} is {g}, want {w}"
            );
        }
    }
}

/// Complex matrices, which are Hermitian.
fn hermitian(dtype: DType, batch: usize, n: usize) -> HostTensor {
    let real = matrices(F64, &[batch], n).to_f64();
    let imaginary = |i: usize, j: usize| (j as f64 - i as f64) / 7.0;
    let pairs = real.iter().enumerate().map(|(k, re)| [*re, imaginary(k / n % n, k % n)]);
    match dtype {
        C64 => {
            let pairs: Vec<_> = pairs.map(|z| z.map(|x| x as f32)).collect();
            HostTensor::of(dtype, &[batch, n, n], &pairs)
        }
        _ => HostTensor::of(dtype, &[batch, n, n], &pairs.collect::<Vec<_>>()),
    }
}

/// The parts of complex results as numbers, others as they are.
fn parts(t: &HostTensor) -> Vec<f64> {
    match t.dtype {
        C64 => t.values::<[f32; 2]>().as_flattened().iter().map(|x| f64::from(*x)).collect(),
        C128 => t.values::<[f64; 2]>().as_flattened().to_vec(),
        _ => t.to_f64(),
    }
}

#[test]
fn batches_of_complex_matrices() {
    for (dtype, count, n) in [(C64, 13, 7), (C128, 9, 5)] {
        if !Session::shared().unwrap().runs(dtype) {
            continue;
        }
        let a = hermitian(dtype, count, n);
        let node = |op: &str| Node::new(op).attr("T", dtype);
        for op in ["Cholesky", "MatrixDeterminant", "LogMatrixDeterminant"] {
            check(2048, &node(op), std::slice::from_ref(&a));
        }
        check(2048, &node("MatrixInverse").attr("adjoint", true), std::slice::from_ref(&a));
        check(2048, &node("MatrixSolve").attr("adjoint", true), &[a.clone(), a.clone()]);
        let triangular = node("MatrixTriangularSolve").attr("lower", true).attr("adjoint", true);
        check(2048, &triangular, &[a.clone(), a.clone()]);
        check(2048, &node("Lu").attr("output_idx_type", I32), std::slice::from_ref(&a));
        check(2048, &node("Qr").attr("full_matrices", false), std::slice::from_ref(&a));
        check(2048, &node("SelfAdjointEigV2").attr("compute_v", true), &[a]);
    }
}

#[test]
fn batches_of_matrices() {
    for (dtype, batch, n) in [(F32, &[13][..], 9), (F64, &[3, 7], 8)] {
        if !Session::shared().unwrap().runs(dtype) {
            continue;
        }
        let a = matrices(dtype, batch, n);
        let b = numbers(dtype, &[batch, &[n, 5]].concat(), 2);
        let node = |op: &str| Node::new(op).attr("T", dtype);
        for op in ["Cholesky", "MatrixDeterminant", "LogMatrixDeterminant"] {
            check(2048, &node(op), std::slice::from_ref(&a));
        }
        check(2048, &node("MatrixInverse").attr("adjoint", false), std::slice::from_ref(&a));
        check(2048, &node("MatrixSolve").attr("adjoint", true), &[a.clone(), b.clone()]);
        let triangular = node("MatrixTriangularSolve").attr("lower", true).attr("adjoint", false);
        check(2048, &triangular, &[a.clone(), b.clone()]);
        check(2048, &node("Lu").attr("output_idx_type", I32), std::slice::from_ref(&a));
        check(2048, &node("Qr").attr("full_matrices", false), std::slice::from_ref(&a));
        check(2048, &node("SelfAdjointEigV2").attr("compute_v", false), std::slice::from_ref(&a));
        check(2048, &node("Svd").attr("compute_uv", false).attr("full_matrices", false), &[a]);
    }
}

#[test]
fn images() {
    for dtype in [F32, F16] {
        let x = numbers(dtype, &[7, 9, 11, 3], 1);
        let size = HostTensor::i32(&[2], &[15, 6]);
        let flags = |op: &str| {
            Node::new(op)
                .attr("T", dtype)
                .attr("align_corners", false)
                .attr("half_pixel_centers", true)
        };
        for op in ["ResizeBilinear", "ResizeNearestNeighbor"] {
            check(4096, &flags(op), &[x.clone(), size.clone()]);
        }
        check(4096, &flags("ResizeBilinearGrad"), &[numbers(F32, &[7, 15, 6, 3], 2), x.clone()]);
        check(
            4096,
            &flags("ResizeNearestNeighborGrad"),
            &[numbers(dtype, &[7, 15, 6, 3], 2), HostTensor::i32(&[2], &[9, 11])],
        );
        let scalar = numbers(F32, &[], 5);
        check(4096, &Node::new("AdjustContrastv2").attr("T", dtype), &[x.clone(), scalar.clone()]);
        check(4096, &Node::new("AdjustSaturation").attr("T", dtype), &[x, scalar]);
    }
    let x = numbers(F32, &[7, 9, 11, 3], 1);
    check(4096, &Node::new("RGBToHSV").attr("T", F32), std::slice::from_ref(&x));
    let lrn = Node::new("LRN")
        .attr("T", F32)
        .attr("depth_radius", 2)
        .attr("bias", 1.0f32)
        .attr("alpha", 0.5f32);
    check(4096, &lrn.attr("beta", 0.5f32), &[x]);
}

#[test]
fn rows() {
    for dtype in Session::shared().unwrap().supported([F32, F16, F64]) {
        let x = numbers(dtype, &[41, 37], 3);
        check(
            2048,
            &Node::new("TopKV2").attr("T", dtype).attr("index_type", I32),
            &[x.clone(), HostTensor::i32(&[], &[5])],
        );
        let bounds = Node::new("LowerBound").attr("T", dtype).attr("out_type", I32);
        let sorted: Vec<f64> = (0..41 * 9).map(|i| (i % 9) as f64 / 9.0).collect();
        check(2048, &bounds, &[HostTensor::floats(dtype, &[41, 9], &sorted), x]);
    }
}

/// One item that does not fit by itself is an error that says so.
#[test]
fn one_item_that_does_not_fit() {
    let a = matrices(F32, &[2], 40);
    let error = bindings::session_of(2048)
        .run(&Node::new("Cholesky").attr("T", F32), &[a.into()])
        .unwrap_err();
    assert!(matches!(&error, Error::ResourceExhausted(m) if m.contains("binding")), "{error}");
}
