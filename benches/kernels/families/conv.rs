//! Convolutions and their gradients, pooling and its gradients.

use tensorflow_wgpu::DType;
use tensorflow_wgpu::local::Node;

use crate::case::{Case, Sizes, Source, by, f32s, host, tensor};

/// The rows.
pub fn cases(sizes: Sizes) -> Vec<Case> {
    let n = sizes.batch;
    let mut cases = Vec::new();
    // ResNet50.
    dense(&mut cases, "Conv2D", &[n, 56, 56, 64], 3, 64, 1, true);
    dense(&mut cases, "Conv2D", &[n, 14, 14, 256], 1, 1024, 1, true);
    dense(&mut cases, "Conv2D", &[n, 224, 224, 3], 7, 64, 2, true);
    dense(&mut cases, "Conv2D", &[n, 28, 28, 256], 3, 256, 2, false);
    dense(&mut cases, "Conv2D", &[n, 7, 7, 512], 3, 512, 1, true);
    dense(&mut cases, "Conv2D", &[n, 56, 56, 256], 1, 64, 1, false);
    // EfficientNetB0.
    dense(&mut cases, "Conv2D", &[n, 56, 56, 24], 1, 144, 1, false);
    depthwise(&mut cases, &[n, 112, 112, 32], 3, 1);
    depthwise(&mut cases, &[n, 28, 28, 240], 5, 2);
    // ConvNeXt.
    depthwise(&mut cases, &[n, 28, 28, 192], 7, 1);
    // U-Net.
    dense(&mut cases, "Conv2D", &[n.div_ceil(4), 128, 128, 128], 3, 64, 1, true);
    dense(&mut cases, "Conv2D", &[n.div_ceil(4), 128, 128, 64], 2, 128, 2, true);
    // Volumes.
    dense(&mut cases, "Conv3D", &[n.div_ceil(8), 16, 32, 32, 32], 3, 64, 1, true);
    cases.push(half(n));
    for op in ["MaxPool", "AvgPool"] {
        pool(&mut cases, op, &[n, 112, 112, 64], 3, 2);
        pool(&mut cases, op, &[n, 56, 56, 128], 2, 2);
    }
    pool(&mut cases, "MaxPool3D", &[n.div_ceil(8), 32, 64, 64, 32], 2, 2);
    cases
}

fn spatial(node: Node, rank: usize, stride: usize) -> Node {
    let strides: Vec<i64> =
        (0..rank).map(|d| if d == 0 || d == rank - 1 { 1 } else { stride as i64 }).collect();
    let format = if rank == 5 { "NDHWC" } else { "NHWC" };
    node.attr("strides", &strides[..]).attr("padding", "SAME").attr("data_format", format)
}

/// The extents after a window of this stride.
fn strided(x: &[usize], stride: usize, channels: usize) -> Vec<usize> {
    let inner = x[1..x.len() - 1].iter().map(|d| d.div_ceil(stride));
    [x[0]].into_iter().chain(inner).chain([channels]).collect()
}

/// A convolution; `gradients` adds those of its input and its filter.
fn dense(
    cases: &mut Vec<Case>,
    op: &str,
    x: &[usize],
    kernel: usize,
    filters: usize,
    stride: usize,
    gradients: bool,
) {
    let rank = x.len();
    let channels = x[rank - 1];
    let y = strided(x, stride, filters);
    let w = [vec![kernel; rank - 2], vec![channels, filters]].concat();
    let flops = 2.0 * (y.iter().product::<usize>() * channels * kernel.pow(rank as u32 - 2)) as f64;
    let dilations = vec![1_i64; rank];
    let node = |suffix: &str| {
        let node = Node::new(&format!("{op}{suffix}"))
            .attr("T", DType::F32)
            .attr("dilations", &dilations[..]);
        spatial(node, rank, stride)
    };
    let step = if stride > 1 { format!(" by {stride}") } else { String::new() };
    let name = |what: &str| format!("{op} {} {}→{filters}{step} {what}", by(&w[..rank - 2]), by(x));
    cases.push(Case::new("conv", name("forward"), node(""), [f32s(x), f32s(&w)]).flops(flops));
    if gradients {
        let suffix = if rank == 5 { "V2" } else { "" };
        let (input, filter) = (format!("BackpropInput{suffix}"), format!("BackpropFilter{suffix}"));
        let shape = |node: Node| if rank == 5 { node.attr("Tshape", DType::I32) } else { node };
        let inputs = [host(x), f32s(&w), f32s(&y)];
        cases.push(Case::new("conv", name("input"), shape(node(&input)), inputs).flops(flops));
        cases.push(
            Case::new("conv", name("filter"), node(&filter), [f32s(x), host(&w), f32s(&y)])
                .flops(flops),
        );
    }
}

/// The same convolution in float16.
fn half(n: usize) -> Case {
    let node = Node::new("Conv2D").attr("T", DType::F16).attr("dilations", &[1_i64; 4][..]);
    let inputs = [tensor(DType::F16, &[n, 56, 56, 64]), tensor(DType::F16, &[3, 3, 64, 64])];
    let flops = 2.0 * (n * 56 * 56 * 64 * 64 * 9) as f64;
    Case::new(
        "conv",
        format!("Conv2D float16 3×3 {n}×56×56×64→64 forward"),
        spatial(node, 4, 1),
        inputs,
    )
    .flops(flops)
}

fn depthwise(cases: &mut Vec<Case>, x: &[usize], kernel: usize, stride: usize) {
    let y = strided(x, stride, x[3]);
    let w = [kernel, kernel, x[3], 1];
    let flops = 2.0 * (y.iter().product::<usize>() * kernel * kernel) as f64;
    let node = |suffix: &str| {
        let node = Node::new(&format!("DepthwiseConv2dNative{suffix}")).attr("T", DType::F32);
        spatial(node.attr("dilations", &[1_i64; 4][..]), 4, stride)
    };
    let name = |what: &str| {
        format!("DepthwiseConv2dNative {kernel}×{kernel} {} by {stride} {what}", by(x))
    };
    let of = |what: &str, suffix: &str, inputs: [Source; 3]| {
        Case::new("depthwise", name(what), node(suffix), inputs).flops(flops)
    };
    cases.push(Case::new("depthwise", name("forward"), node(""), [f32s(x), f32s(&w)]).flops(flops));
    cases.push(of("input", "BackpropInput", [host(x), f32s(&w), f32s(&y)]));
    cases.push(of("filter", "BackpropFilter", [f32s(x), host(&w), f32s(&y)]));
}

fn pool(cases: &mut Vec<Case>, op: &str, x: &[usize], kernel: usize, stride: usize) {
    let rank = x.len();
    let y = strided(x, stride, x[rank - 1]);
    let window: Vec<i64> =
        (0..rank).map(|d| if d == 0 || d == rank - 1 { 1 } else { kernel as i64 }).collect();
    let node = |suffix: &str| {
        let node =
            Node::new(&format!("{op}{suffix}")).attr("T", DType::F32).attr("TInput", DType::F32);
        spatial(
            node.attr("ksize", &window[..]).attr("explicit_paddings", &[] as &[i64]),
            rank,
            stride,
        )
    };
    let flops = (y.iter().product::<usize>() * kernel.pow(rank as u32 - 2)) as f64;
    let name =
        |what: &str| format!("{op} {} {} by {stride} {what}", by(&vec![kernel; rank - 2]), by(x));
    cases.push(Case::new("pool", name("forward"), node(""), [f32s(x)]).flops(flops));
    let inputs =
        if op == "AvgPool" { vec![host(x), f32s(&y)] } else { vec![f32s(x), f32s(&y), f32s(&y)] };
    cases.push(Case::new("pool", name("gradient"), node("Grad"), inputs).flops(flops));
}
