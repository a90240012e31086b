//! Matrix products.

use tensorflow_wgpu::DType;
use tensorflow_wgpu::local::Node;

use crate::case::{Case, Sizes, by, f32s, tensor};

/// The rows.
pub fn cases(sizes: Sizes) -> Vec<Case> {
    let tokens = sizes.sequences * 128;
    let mut cases = vec![
        product(DType::F32, [1024; 3], ""),
        product(DType::F32, [1024; 3], "b transposed"),
        product(DType::F32, [1024; 3], "a transposed"),
        product(DType::F16, [1024; 3], ""),
        product(DType::BF16, [1024; 3], ""),
        product(DType::F32, [tokens, 768, 768], ""),
        product(DType::F32, [tokens, 768, 3072], ""),
        product(DType::F32, [tokens, 3072, 768], ""),
        product(DType::F32, [768, tokens, 3072], "a transposed"),
        product(DType::F32, [sizes.batch, 2048, 1000], ""),
        product(DType::F32, [32, 256, 1024], ""),
        product(DType::F32, [1, 4096, 4096], ""),
        product(DType::F32, [16_384, 128, 10], ""),
        product(DType::F32, [64, 64, 16_384], ""),
        product(DType::F32, [64, 65_536, 64], ""),
    ];
    if sizes.large {
        cases.extend([DType::F32, DType::F16].map(|t| product(t, [4096; 3], "")));
    }
    for dtype in [DType::F32, DType::F16] {
        cases.push(batched(dtype, [sizes.sequences * 12, 128, 64, 128], true));
        cases.push(batched(dtype, [sizes.sequences * 12, 128, 128, 64], false));
    }
    cases.push(einsum(&[sizes.sequences, 128, 768], &[768, 12, 64], "abc,cde->abde"));
    cases
}

/// The product of m×k and k×n.
fn product(dtype: DType, [m, k, n]: [usize; 3], how: &str) -> Case {
    let (ta, tb) = (how == "a transposed", how == "b transposed");
    let node = Node::new("MatMul").attr("T", dtype).attr("transpose_a", ta).attr("transpose_b", tb);
    let a = if ta { [k, m] } else { [m, k] };
    let b = if tb { [n, k] } else { [k, n] };
    let name = format!("MatMul {dtype} {} {how}", by(&[m, k, n]));
    Case::new("matmul", name.trim_end(), node, [tensor(dtype, &a), tensor(dtype, &b)])
        .flops(2.0 * (m * k * n) as f64)
}

fn batched(dtype: DType, [batch, m, k, n]: [usize; 4], transposed: bool) -> Case {
    let node =
        Node::new("BatchMatMulV2").attr("T", dtype).attr("adj_x", false).attr("adj_y", transposed);
    let b = if transposed { [batch, n, k] } else { [batch, k, n] };
    let how = if transposed { " b transposed" } else { "" };
    let name = format!("BatchMatMulV2 {dtype} {}{how}", by(&[batch, m, k, n]));
    let inputs = [tensor(dtype, &[batch, m, k]), tensor(dtype, &b)];
    Case::new("matmul", name, node, inputs).flops(2.0 * (batch * m * k * n) as f64)
}

/// A projection onto heads, as in attention layers: the result has all dimensions of `b` except its
/// first.
fn einsum(a: &[usize], b: &[usize], equation: &str) -> Case {
    let node = Node::new("Einsum").attr("T", DType::F32).attr("N", 2).attr("equation", equation);
    let flops = 2.0 * (a.iter().product::<usize>() * b[1..].iter().product::<usize>()) as f64;
    Case::new("einsum", format!("Einsum {equation} {}", by(a)), node, [f32s(a), f32s(b)])
        .flops(flops)
}
