//! Elementwise ops, run one by one by TensorFlow: whole vectors, broadcast operands, narrow types,
//! conversions.

use tensorflow_wgpu::DType;
use tensorflow_wgpu::local::Node;

use crate::case::{Case, Fill, Sizes, Source, by, f32s, positive, scalar, tensor};

const LARGE: &[usize] = &[16 << 20];

/// The rows.
pub fn cases(sizes: Sizes) -> Vec<Case> {
    let image = [sizes.batch, 56, 56, 256];
    let channels = [256_usize];
    let mut cases = vec![
        typed("AddV2", DType::F32, [f32s(LARGE), f32s(LARGE)], "16 M"),
        typed("AddV2", DType::F16, [tensor(DType::F16, LARGE), tensor(DType::F16, LARGE)], "16 M"),
        typed("Mul", DType::F32, [f32s(LARGE), scalar(0.5)], "16 M by a scalar"),
        typed(
            "AddV2",
            DType::F32,
            [f32s(&image), f32s(&channels)],
            &format!("{} + channels", by(&image)),
        ),
        typed(
            "Mul",
            DType::F32,
            [f32s(&image), f32s(&[sizes.batch, 1, 1, 256])],
            &format!("{} by images", by(&image)),
        ),
        typed("AddV2", DType::F32, [f32s(&[4096, 1]), f32s(&[1, 4096])], "4096×1 + 1×4096"),
    ];
    for op in ["Relu", "Tanh", "Sigmoid", "Exp", "Erf", "Rsqrt", "Sin"] {
        cases.push(typed(op, DType::F32, [positive(LARGE)], "16 M"));
    }
    cases.push(typed("Relu", DType::F16, [tensor(DType::F16, LARGE)], "16 M"));
    cases.push(typed("ReluGrad", DType::F32, [f32s(LARGE), f32s(LARGE)], "16 M"));
    cases.push(typed("Pow", DType::F32, [positive(LARGE), scalar(2.5)], "16 M"));
    cases.push(typed("RealDiv", DType::F32, [f32s(LARGE), positive(LARGE)], "16 M"));
    cases.push(typed("Greater", DType::F32, [f32s(LARGE), scalar(0.0)], "16 M"));
    cases.push(typed(
        "SelectV2",
        DType::F32,
        [tensor(DType::Bool, LARGE), f32s(LARGE), f32s(LARGE)],
        "16 M",
    ));
    let bools = [tensor(DType::Bool, LARGE), tensor(DType::Bool, LARGE)];
    cases.push(Case::new("scalar", "LogicalAnd 16 M", Node::new("LogicalAnd"), bools));
    let ids = || Source::Tensor(DType::I64, vec![4 << 20], Fill::Below(1000));
    cases.push(typed(
        "FloorMod",
        DType::I64,
        [ids(), Source::Tensor(DType::I64, vec![4 << 20], Fill::Below(7))],
        "4 M",
    ));
    cases.push(typed("BiasAdd", DType::F32, [f32s(&image), f32s(&channels)], &by(&image)));
    for (from, to) in [
        (DType::F32, DType::F16),
        (DType::F16, DType::F32),
        (DType::Bool, DType::F32),
        (DType::F32, DType::I64),
    ] {
        let node = Node::new("Cast").attr("SrcT", from).attr("DstT", to).attr("Truncate", false);
        cases.push(Case::new(
            "scalar",
            format!("Cast {from} to {to} 16 M"),
            node,
            [tensor(from, LARGE)],
        ));
    }
    let four: Vec<Source> = (0..4).map(|_| f32s(&[4 << 20])).collect();
    let node = Node::new("AddN").attr("T", DType::F32).attr("N", 4);
    cases.push(Case::new("scalar", "AddN of 4, 4 M", node, four));
    // The cost of a single small op: the figure is the host's time.
    cases
        .push(typed("AddV2", DType::F32, [f32s(&[64]), f32s(&[64])], "64, 1000 times").calls(1000));
    cases.push(
        typed("Mul", DType::F32, [f32s(&[64, 64]), scalar(0.5)], "64×64 by a scalar, 1000 times")
            .calls(1000),
    );
    cases
}

fn typed(op: &'static str, dtype: DType, inputs: impl Into<Vec<Source>>, what: &str) -> Case {
    // BiasAdd has a layout; other rows ignore the attribute.
    let node = Node::new(op).attr("T", dtype).attr("data_format", "NHWC");
    Case::new(
        if op == "BiasAdd" { "bias" } else { "scalar" },
        format!("{op} {dtype} {what}"),
        node,
        inputs,
    )
}
