//! Steps of optimizers, one variable at a time and many at once.

use tensorflow_wgpu::DType;
use tensorflow_wgpu::local::Node;

use crate::case::{Case, Fill, Sizes, Source, f32s, scalar};

/// Adam as in Keras: m, v and the variable, a gradient, the rate; 1 - beta1, 1 - beta2 and epsilon.
const ADAM: &str = "x: float32, float32, float32, float32, float32; c: 3; s0 = Sub<float32>(x3, \
                    x0); s1 = Mul<float32>(s0, c0); s2 = AddV2<float32>(x0, s1); s3 = \
                    Square<float32>(x3); s4 = Sub<float32>(s3, x1); s5 = Mul<float32>(s4, c1); s6 \
                    = AddV2<float32>(x1, s5); s7 = Mul<float32>(s2, x4); s8 = Sqrt<float32>(s6); \
                    s9 = AddV2<float32>(s8, c2); s10 = RealDiv<float32>(s7, s9); s11 = \
                    Sub<float32>(x2, s10); return s2, s6, s11";

fn variable(dims: &[usize]) -> Source {
    Source::Variable(DType::F32, dims.to_vec(), Fill::Positive)
}

/// The rows.
pub fn cases(_: Sizes) -> Vec<Case> {
    let dims = [4 << 20];
    let node = |op: &str| {
        Node::new(op).attr("T", DType::F32).attr("use_locking", false).attr("use_nesterov", false)
    };
    let rates = [0.9, 0.999, 0.001, 0.9, 0.999, 1e-7].map(scalar);
    let adam = [
        vec![variable(&dims), variable(&dims), variable(&dims)],
        rates.to_vec(),
        vec![f32s(&dims)],
    ]
    .concat();
    let mut cases = vec![
        Case::new(
            "training",
            "ResourceApplyGradientDescent 4 M",
            node("ResourceApplyGradientDescent"),
            [variable(&dims), scalar(0.01), f32s(&dims)],
        ),
        Case::new(
            "training",
            "ResourceApplyMomentum 4 M",
            node("ResourceApplyMomentum"),
            [variable(&dims), variable(&dims), scalar(0.01), f32s(&dims), scalar(0.9)],
        ),
        Case::new("training", "ResourceApplyAdam 4 M", node("ResourceApplyAdam"), adam),
    ];
    let sparse =
        Node::new("ResourceSparseApplyAdagrad").attr("T", DType::F32).attr("Tindices", DType::I32);
    let (words, width, rows) = (30_522, 768, 512);
    let ids = Source::Tensor(DType::I32, vec![rows], Fill::Below(words));
    let inputs = [
        variable(&[words, width]),
        variable(&[words, width]),
        scalar(0.01),
        f32s(&[rows, width]),
        ids,
    ];
    let sparse = sparse.attr("use_locking", false).attr("update_slots", true);
    let name = "ResourceSparseApplyAdagrad 512 rows of 30522×768";
    cases
        .push(Case::new("training", name, sparse, inputs).bytes(5.0 * 4.0 * (rows * width) as f64));
    cases.push(fused("1 of 4 M", &[vec![4 << 20]]));
    cases.push(fused("48 of a transformer's layers", &transformer(4)));
    cases.push(fused("161 of ResNet50", &resnet()));
    cases
}

/// The variables of some layers of width 768: attention, two dense layers, normalizations.
fn transformer(layers: usize) -> Vec<Vec<usize>> {
    let layer: [&[usize]; 12] = [
        &[768, 2304],
        &[2304],
        &[768, 768],
        &[768],
        &[768, 3072],
        &[3072],
        &[3072, 768],
        &[768],
        &[768],
        &[768],
        &[768],
        &[768],
    ];
    (0..layers).flat_map(|_| layer.iter().map(|dims| dims.to_vec())).collect()
}

/// The trainable variables of ResNet50 without biases: filters, and a scale and a shift for each.
fn resnet() -> Vec<Vec<usize>> {
    let mut made = Vec::new();
    let mut layer = |kernel: usize, from: usize, to: usize| {
        made.extend([vec![kernel, kernel, from, to], vec![to], vec![to]])
    };
    layer(7, 3, 64);
    let mut from = 64;
    for (blocks, width) in [(3, 64), (4, 128), (6, 256), (3, 512)] {
        for block in 0..blocks {
            layer(1, from, width);
            layer(3, width, width);
            layer(1, width, 4 * width);
            if block == 0 {
                layer(1, from, 4 * width);
            }
            from = 4 * width;
        }
    }
    made.extend([vec![2048, 1000], vec![1000]]);
    made
}

fn fused(what: &str, members: &[Vec<usize>]) -> Case {
    let count = members.len();
    let node = Node::new("_WgpuFusedUpdate")
        .attr("N", count as i64)
        .attr("NR", 3 * count as i64)
        .attr("Ttensors", &vec![DType::F32; count][..])
        .attr("Tscalars", &[DType::F32][..])
        .attr("expression", ADAM)
        .attr("constants", &[0.1_f32, 0.001, 1e-7][..]);
    let variables = members.iter().flat_map(|dims| (0..3).map(|_| variable(dims)));
    let gradients = members.iter().map(|dims| f32s(dims));
    let inputs: Vec<Source> = variables.chain(gradients).chain([scalar(0.001)]).collect();
    Case::new("fused", format!("_WgpuFusedUpdate Adam, {what}"), node, inputs)
}
