//! Decompositions, solves, eigenvalues and singular values.

use tensorflow_wgpu::local::Node;
use tensorflow_wgpu::{DType, HostTensor};

use crate::case::{Case, Source, by, f32s};

/// The rows. The arithmetic is that of the textbooks' direct algorithms for the results of the op;
/// for iterations it is that of one sweep.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let square = |[b, n, _]: [usize; 3]| (b * n.pow(3)) as f64;
    for (op, dims, share) in [
        ("Cholesky", [16, 128, 128], 1.0 / 3.0),
        ("MatrixInverse", [16, 128, 128], 2.0),
        ("SelfAdjointEigV2", [1, 64, 64], 2.0),
        ("SelfAdjointEigV2", [32, 32, 32], 2.0),
        ("Lu", [16, 128, 128], 2.0 / 3.0),
        ("Lu", [1, 512, 512], 2.0 / 3.0),
    ] {
        let matrix = Source::Value(definite(dims));
        cases.push(
            Case::new("linalg", format!("{op} {}", by(&dims)), node(op), [matrix])
                .flops(share * square(dims)),
        );
    }
    for (op, cols, share) in [("MatrixSolve", 16, 2.0 / 3.0), ("MatrixTriangularSolve", 128, 0.0)] {
        let (dims, right) = ([16, 128, 128], [16, 128, cols]);
        let each = if op == "MatrixSolve" { 2.0 } else { 1.0 };
        let flops = share * square(dims) + each * (16 * 128 * 128 * cols) as f64;
        let name = format!("{op} {} for {cols} columns", by(&dims));
        cases.push(
            Case::new("linalg", name, node(op), [Source::Value(definite(dims)), f32s(&right)])
                .flops(flops),
        );
    }
    for dims in [[16, 64, 64], [1, 1024, 64], [1, 256, 256]] {
        let [b, m, n]: [usize; 3] = dims;
        // The factor, and the same amount again for Q.
        let flops = 2.0 * (b * 2 * n * n * m) as f64 - 4.0 / 3.0 * (b * n.pow(3)) as f64;
        cases.push(
            Case::new("linalg", format!("Qr {}", by(&dims)), node("Qr"), [f32s(&dims)])
                .flops(flops),
        );
    }
    for dims in [[16, 32, 32], [1, 64, 64], [1, 512, 32]] {
        let [b, m, n]: [usize; 3] = dims;
        let flops = (b * (4 * m * n * n + 8 * n.pow(3))) as f64;
        cases.push(
            Case::new("linalg", format!("Svd {}", by(&dims)), node("Svd"), [f32s(&dims)])
                .flops(flops),
        );
    }
    cases
}

/// A node with all attributes that any of these ops has.
fn node(op: &str) -> Node {
    let node = Node::new(op).attr("T", DType::F32).attr("adjoint", false).attr("lower", true);
    let node = node.attr("output_idx_type", DType::I32).attr("full_matrices", false);
    node.attr("compute_v", true).attr("compute_uv", true)
}

/// Symmetric matrices with a heavy diagonal.
fn definite([batch, n, _]: [usize; 3]) -> HostTensor {
    let element =
        |i: usize, j: usize| if i == j { n as f32 } else { 1.0 / (1.0 + i.abs_diff(j) as f32) };
    let values: Vec<f32> = (0..batch * n * n).map(|k| element(k / n % n, k % n)).collect();
    HostTensor::f32(&[batch, n, n], &values)
}
