//! Softmax, losses, batch normalization and local responses.

use tensorflow_wgpu::DType;
use tensorflow_wgpu::local::Node;

use crate::case::{Case, Fill, Sizes, Source, by, f32s, positive, tensor};

/// The rows.
pub fn cases(sizes: Sizes) -> Vec<Case> {
    let mut cases = Vec::new();
    for op in ["Softmax", "LogSoftmax"] {
        for dtype in [DType::F32, DType::F16] {
            cases.push(softmax(op, dtype, &[4096, 1024]));
        }
    }
    cases.push(softmax("Softmax", DType::F32, &[sizes.sequences * 12 * 128, 128]));
    cases.push(softmax("Softmax", DType::F32, &[16, 262_144]));
    let logits = [4096, 1000];
    let node = Node::new("SoftmaxCrossEntropyWithLogits").attr("T", DType::F32);
    cases.push(Case::new(
        "softmax",
        "SoftmaxCrossEntropyWithLogits 4096×1000",
        node,
        [f32s(&logits), positive(&logits)],
    ));
    let node = Node::new("SparseSoftmaxCrossEntropyWithLogits")
        .attr("T", DType::F32)
        .attr("Tlabels", DType::I64);
    let labels = Source::Tensor(DType::I64, vec![4096], Fill::Below(1000));
    cases.push(Case::new(
        "softmax",
        "SparseSoftmaxCrossEntropyWithLogits 4096×1000",
        node,
        [f32s(&logits), labels],
    ));
    for x in [[sizes.batch, 56, 56, 256], [sizes.batch, 7, 7, 2048], [sizes.batch, 112, 112, 32]] {
        batch_norm(&mut cases, DType::F32, &x);
    }
    batch_norm(&mut cases, DType::F16, &[sizes.batch, 56, 56, 256]);
    let node = Node::new("LRN").attr("T", DType::F32).attr("depth_radius", 5).attr("bias", 1.0_f32);
    let x = [sizes.batch, 28, 28, 192];
    cases.push(Case::new(
        "patches",
        format!("LRN {}", by(&x)),
        node.attr("alpha", 1e-4_f32).attr("beta", 0.75_f32),
        [f32s(&x)],
    ));
    cases
}

fn softmax(op: &str, dtype: DType, dims: &[usize]) -> Case {
    let flops = 4.0 * dims.iter().product::<usize>() as f64;
    let node = Node::new(op).attr("T", dtype);
    Case::new("softmax", format!("{op} {dtype} {}", by(dims)), node, [tensor(dtype, dims)])
        .flops(flops)
}

fn batch_norm(cases: &mut Vec<Case>, dtype: DType, x: &[usize]) {
    let channels = [x[3]];
    let node = |op: &str, training: bool| {
        let node = Node::new(op).attr("T", dtype).attr("U", DType::F32).attr("epsilon", 1e-3_f32);
        node.attr("exponential_avg_factor", 1.0_f32)
            .attr("data_format", "NHWC")
            .attr("is_training", training)
    };
    let name = |what: &str| format!("{what} {dtype} {}", by(x));
    let half = || positive(&channels);
    let count: usize = x.iter().product();
    // Statistics are computed before they are used, so the input is read twice.
    let bytes = (dtype.size() * count) as f64;
    let inference = [tensor(dtype, x), half(), half(), half(), half()];
    cases.push(Case::new(
        "norm",
        name("FusedBatchNormV3 inference"),
        node("FusedBatchNormV3", false),
        inference.clone(),
    ));
    cases.push(
        Case::new(
            "norm",
            name("FusedBatchNormV3 training"),
            node("FusedBatchNormV3", true),
            inference,
        )
        .bytes(3.0 * bytes),
    );
    let inputs = [tensor(dtype, x), tensor(dtype, x), half(), half(), half(), half()];
    let gradient = node("FusedBatchNormGradV3", true);
    cases
        .push(Case::new("norm", name("FusedBatchNormGradV3"), gradient, inputs).bytes(5.0 * bytes));
}
