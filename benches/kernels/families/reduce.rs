//! Reductions and scans.

use tensorflow_wgpu::DType;
use tensorflow_wgpu::local::Node;

use crate::case::{Case, Sizes, Source, by, f32s, host, index, tensor};

/// The rows.
pub fn cases(sizes: Sizes) -> Vec<Case> {
    let square = [4096, 4096];
    let image = [sizes.batch, 56, 56, 256];
    let mut cases = vec![
        reduction("Sum", DType::F32, &square, &[1]),
        reduction("Sum", DType::F32, &square, &[0]),
        reduction("Sum", DType::F32, &square, &[0, 1]),
        reduction("Max", DType::F32, &square, &[1]),
        reduction("Mean", DType::F32, &image, &[1, 2]),
        reduction("Sum", DType::F32, &image, &[0, 1, 2]),
        reduction("Sum", DType::F16, &square, &[1]),
        reduction("Sum", DType::F16, &square, &[0]),
        reduction("Sum", DType::F32, &[64, 64, 64, 64], &[0, 2]),
        reduction("All", DType::Bool, &square, &[1]),
    ];
    for axis in [1, 0] {
        let node = Node::new("ArgMax")
            .attr("T", DType::F32)
            .attr("Tidx", DType::I32)
            .attr("output_type", DType::I64);
        cases.push(Case::new(
            "reduce",
            format!("ArgMax 4096×4096 over {axis}"),
            node,
            [f32s(&square), index(axis)],
        ));
    }
    let node = Node::new("BiasAddGrad").attr("T", DType::F32).attr("data_format", "NHWC");
    cases.push(Case::new("bias", format!("BiasAddGrad {}", by(&image)), node, [f32s(&image)]));
    cases.push(Case::new(
        "reduce",
        "L2Loss 16 M",
        Node::new("L2Loss").attr("T", DType::F32),
        [f32s(&[16 << 20])],
    ));
    for (op, axis) in [("Cumsum", 1), ("Cumsum", 0), ("Cumprod", 1)] {
        let node = Node::new(op).attr("T", DType::F32).attr("Tidx", DType::I32);
        let node = node.attr("exclusive", false).attr("reverse", false);
        cases.push(Case::new(
            "scan",
            format!("{op} 4096×1024 over {axis}"),
            node,
            [f32s(&[4096, 1024]), index(axis)],
        ));
    }
    cases
}

fn reduction(op: &str, dtype: DType, dims: &[usize], axes: &[usize]) -> Case {
    let node = Node::new(op).attr("T", dtype).attr("Tidx", DType::I32).attr("keep_dims", false);
    let over = axes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let inputs: [Source; 2] = [tensor(dtype, dims), host(axes)];
    let flops = dims.iter().product::<usize>() as f64;
    Case::new("reduce", format!("{op} {dtype} {} over {over}", by(dims)), node, inputs).flops(flops)
}
