//! Ops that the graph optimizer puts in place of several ops.

use tensorflow_wgpu::DType;
use tensorflow_wgpu::local::Node;

use crate::case::{Case, Sizes, Source, by, f32s, tensor};

/// A GELU by tanh.
const GELU: &str = "s0 = Square<T>(x0); s1 = Mul<T>(s0, x0); s2 = Mul<T>(s1, c0); s3 = \
                    AddV2<T>(x0, s2); s4 = Mul<T>(s3, c1); s5 = Tanh<T>(s4); s6 = AddV2<T>(s5, \
                    c2); s7 = Mul<T>(x0, c3); s8 = Mul<T>(s7, s6); return s8";
const GELU_CONSTANTS: [f32; 4] = [0.044_715, 0.797_884_6, 1.0, 0.5];
/// A layer normalization as in Keras.
const LAYER_NORM: &str = "Mean: x: T, T, T; c: 1; return x0 | Mean: x: T, T, T, T; c: 1; s0 = \
                          SquaredDifference<T>(x0, x3); return s0 | row: x: T, T, T, T, T; c: 1; \
                          s0 = AddV2<T>(x4, c0); s1 = Rsqrt<T>(s0); return s1 | full: x: T, T, T, \
                          T, T, T; c: 1; s0 = Mul<T>(x1, x5); s1 = Mul<T>(x0, s0); s2 = \
                          Neg<T>(x3); s3 = Mul<T>(s2, s0); s4 = AddV2<T>(s1, s3); s5 = \
                          AddV2<T>(s4, x2); return s5 | return y0";
/// A softmax in elementary ops.
const SOFTMAX: &str = "Max: x: T; c: 0; return x0 | Sum: x: T, T; c: 0; s0 = Sub<T>(x0, x1); s1 = \
                       Exp<T>(s0); return s1 | full: x: T, T, T; c: 0; s0 = Sub<T>(x0, x1); s1 = \
                       Exp<T>(s0); s2 = RealDiv<T>(s1, x2); return s2 | return y0";

/// The rows.
pub fn cases(sizes: Sizes) -> Vec<Case> {
    let large = [16 << 20];
    let tokens = sizes.sequences * 128;
    let image = [sizes.batch, 56, 56, 256];
    let gelu = |name, dtype| {
        elementwise(name, dtype, 1, GELU, &GELU_CONSTANTS, &[&large])
            .flops(9.0 * f64::from(16 << 20))
    };
    let mut cases = vec![
        gelu("GELU 16 M", DType::F32),
        gelu("GELU float16 16 M", DType::F16),
        gelu("GELU bfloat16 16 M", DType::BF16),
        elementwise(
            "swish 16 M",
            DType::F32,
            1,
            "s0 = Sigmoid<T>(x0); s1 = Mul<T>(x0, s0); return s1",
            &[],
            &[&large],
        ),
        elementwise(
            &format!("scale, shift, residual, relu {}", by(&image)),
            DType::F32,
            4,
            "s0 = Mul<T>(x0, x1); s1 = AddV2<T>(s0, x2); s2 = AddV2<T>(s1, x3); s3 = Relu<T>(s2); \
             return s3",
            &[],
            &[&image, &[256], &[256], &image],
        ),
    ];
    for dims in [[4096, 1024], [tokens, 768]] {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let inputs =
                [tensor(dtype, &dims), tensor(dtype, &dims[1..]), tensor(dtype, &dims[1..])];
            cases.push(
                rows("layer norm", dtype, LAYER_NORM, 3, &[1e-3], &dims, inputs.into())
                    .flops(8.0 * (dims[0] * dims[1]) as f64),
            );
        }
    }
    cases.push(rows(
        "softmax",
        DType::F32,
        SOFTMAX,
        1,
        &[],
        &[4096, 1024],
        vec![f32s(&[4096, 1024])],
    ));
    cases.push(reduce(
        "mean and variance over all but channels",
        "s0 = Square<T>(x0); return x0, s0",
        "Mean,Mean",
        &image,
        &[0, 1, 2],
    ));
    cases.push(reduce(
        "sum of squares over the last",
        "s0 = Square<T>(x0); return s0",
        "Sum",
        &[4096, 4096],
        &[1],
    ));
    cases.push(matmul([tokens, 768, 3072]));
    cases.push(with_argument([tokens, 768, 3072]));
    cases.push(joined([tokens, 768, 768]));
    cases.push(joined_with_sums([tokens, 768, 768]));
    cases.push(with_sums([tokens, 768, 3072]));
    cases.push(added([tokens, 768, 768]));
    cases.push(rotary(&[sizes.sequences, 128, 12, 64]));
    cases.push(conv(sizes.batch));
    let heads = [sizes.sequences, 12];
    for dtype in [DType::F32, DType::F16] {
        cases.push(attention(dtype, heads, 128, 64, false));
    }
    cases.push(attention(DType::F32, [1, 12], 1024, 64, true));
    cases
}

/// The types of a node whose operands and results are all of `dtype`.
fn typed(node: Node, dtype: DType, inputs: usize, outputs: usize) -> Node {
    node.attr("T_in", &vec![dtype; inputs][..]).attr("T_out", &vec![dtype; outputs][..])
}

/// The head of an expression of `count` inputs.
fn expression(dtype: DType, count: usize, constants: usize, text: &str) -> String {
    let inputs = vec![dtype.name(); count].join(", ");
    format!("x: {inputs}; c: {constants}; {}", text.replace("<T>", &format!("<{dtype}>")))
}

fn elementwise(
    what: &str,
    dtype: DType,
    inputs: usize,
    text: &str,
    constants: &[f32],
    dims: &[&[usize]],
) -> Case {
    let node = typed(Node::new("_WgpuFusedElementwise"), dtype, inputs, 1);
    let node = node
        .attr("expression", &expression(dtype, inputs, constants.len(), text)[..])
        .attr("constants", constants);
    let inputs: Vec<Source> = dims.iter().map(|d| tensor(dtype, d)).collect();
    Case::new("fused", format!("_WgpuFusedElementwise {what}"), node, inputs)
}

fn rows(
    what: &str,
    dtype: DType,
    program: &str,
    inputs: usize,
    constants: &[f32],
    dims: &[usize],
    sources: Vec<Source>,
) -> Case {
    let program = program
        .replace("<T>", &format!("<{dtype}>"))
        .replace("T,", &format!("{dtype},"))
        .replace("T;", &format!("{dtype};"));
    let node = typed(Node::new("_WgpuFusedRowwise"), dtype, inputs, 1);
    let node =
        node.attr("program", &program[..]).attr("axes", &[-1_i64][..]).attr("constants", constants);
    Case::new("fused", format!("_WgpuFusedRowwise {what} {dtype} {}", by(dims)), node, sources)
}

fn reduce(what: &str, text: &str, reductions: &str, dims: &[usize], axes: &[i64]) -> Case {
    let outputs = reductions.split(',').count();
    let node = typed(Node::new("_WgpuFusedReduce"), DType::F32, 1, outputs)
        .attr("expression", &expression(DType::F32, 1, 0, text)[..])
        .attr("constants", &[] as &[f32])
        .attr("reductions", reductions)
        .attr("axes", axes)
        .attr("T_extra", &[] as &[DType])
        .attr("epilogue", "")
        .attr("epilogue_constants", &[] as &[f32])
        .attr("whole", false)
        .attr("keep_dims", false);
    Case::new("fused", format!("_WgpuFusedReduce {what} {}", by(dims)), node, [f32s(dims)])
}

/// A contraction's attributes for an epilogue over the result and `extras` operands.
fn epilogue(node: Node, extras: usize, text: &str, constants: &[f32]) -> Node {
    node.attr("T", DType::F32)
        .attr("T_out", DType::F32)
        .attr("T_extra", &vec![DType::F32; extras][..])
        .attr("expression", &expression(DType::F32, extras + 1, constants.len(), text)[..])
        .attr("constants", constants)
}

/// A dense layer with a bias and a GELU.
fn matmul([m, k, n]: [usize; 3]) -> Case {
    let renamed = GELU.replace("x0", "b");
    let text = format!("b = AddV2<T>(x0, x1); {renamed}");
    // Steps are numbered in order: the sum with the bias comes first.
    let text =
        (0..9).rev().fold(text, |text, i| text.replace(&format!("s{i}"), &format!("s{}", i + 1)));
    let text = text
        .replace("b = ", "s0 = ")
        .replace("(b,", "(s0,")
        .replace(", b)", ", s0)")
        .replace("(b)", "(s0)");
    let node = Node::new("_WgpuFusedMatMul").attr("transpose_a", false).attr("transpose_b", false);
    let inputs = [f32s(&[m, k]), f32s(&[k, n]), f32s(&[n])];
    let node = epilogue(node, 1, &text, &GELU_CONSTANTS);
    Case::new("fused", format!("_WgpuFusedMatMul bias, GELU {}", by(&[m, k, n])), node, inputs)
        .flops(2.0 * (m * k * n) as f64)
}

/// A dense layer that stores a SiLU and its argument, for its gradient.
fn with_argument([m, k, n]: [usize; 3]) -> Case {
    let text = "s0 = AddV2<T>(x0, x1); s1 = Sigmoid<T>(s0); s2 = Mul<T>(s0, s1); return s2, s0";
    let node = adjoint(Node::new("_WgpuFusedMatMulWithArgument"), [false; 2]);
    let inputs = [f32s(&[m, k]), f32s(&[k, n]), f32s(&[n])];
    let name = format!("_WgpuFusedMatMulWithArgument bias, SiLU {}", by(&[m, k, n]));
    Case::new("fused", name, epilogue(node, 1, text, &[]), inputs).flops(2.0 * (m * k * n) as f64)
}

/// The node, with the operands of its product that are transposed.
fn adjoint(node: Node, [x, y]: [bool; 2]) -> Node {
    node.attr("adj_x", x).attr("adj_y", y)
}

/// Query, key and value.
fn joined([m, k, n]: [usize; 3]) -> Case {
    let node = adjoint(Node::new("_WgpuFusedJoinedMatMul"), [false; 2])
        .attr("N", 3_i64)
        .attr("T_extras", &[] as &[DType]);
    let inputs = std::iter::once(f32s(&[m, k])).chain((0..3).map(|_| f32s(&[k, n])));
    let name = format!("_WgpuFusedJoinedMatMul 3 of {}", by(&[m, k, n]));
    Case::new("fused", name, epilogue(node, 0, "return x0", &[]), inputs.collect::<Vec<_>>())
        .flops(6.0 * (m * k * n) as f64)
}

/// The gradients of their weights and biases.
fn joined_with_sums([m, k, n]: [usize; 3]) -> Case {
    let node = Node::new("_WgpuFusedJoinedMatMulWithSums").attr("N", 3_i64).attr("adj_x", true);
    let inputs = std::iter::once(f32s(&[m, k])).chain((0..3).map(|_| f32s(&[m, n])));
    let name = format!("_WgpuFusedJoinedMatMulWithSums 3 of {}", by(&[k, m, n]));
    Case::new("fused", name, epilogue(node, 0, "return x0", &[]), inputs.collect::<Vec<_>>())
        .flops(6.0 * (m * k * n) as f64)
}

/// The gradients of a layer's weights and bias.
fn with_sums([m, k, n]: [usize; 3]) -> Case {
    let node = Node::new("_WgpuFusedMatMulWithSums").attr("adj_x", true);
    let name = format!("_WgpuFusedMatMulWithSums {}", by(&[k, m, n]));
    let node = epilogue(node, 0, "return x0", &[]);
    Case::new("fused", name, node, [f32s(&[m, k]), f32s(&[m, n])]).flops(2.0 * (m * k * n) as f64)
}

/// The gradient of the input that query, key and value share.
fn added([m, k, n]: [usize; 3]) -> Case {
    let node = adjoint(Node::new("_WgpuFusedAddedMatMul"), [false, true]).attr("N", 3_i64);
    let left = (0..3).map(|_| f32s(&[m, n]));
    let inputs = left.chain((0..3).map(|_| f32s(&[k, n]))).collect::<Vec<_>>();
    let name = format!("_WgpuFusedAddedMatMul 3 of {}", by(&[m, n, k]));
    Case::new("fused", name, epilogue(node, 0, "return x0", &[]), inputs)
        .flops(6.0 * (m * k * n) as f64)
}

/// A rotary embedding of heads.
fn rotary(dims: &[usize; 4]) -> Case {
    let text = "s0 = Mul<T>(x0, x1); s1 = Mul<T>(x2, x3); s2 = Sub<T>(s0, s1); s3 = Mul<T>(x0, \
                x3); s4 = Mul<T>(x2, x1); s5 = AddV2<T>(s3, s4); return s2, s5";
    let node = Node::new("_WgpuFusedConcat")
        .attr("T_in", &[DType::F32; 4][..])
        .attr("T", DType::F32)
        .attr("expression", &expression(DType::F32, 4, 0, text)[..])
        .attr("constants", &[] as &[f32])
        .attr("parts", &[0_i64, -1, 1, -1][..])
        .attr("axis", -1_i64)
        .attr("interleaved", false);
    let angles = [dims[1], 1, dims[3] / 2];
    let inputs = [f32s(dims), f32s(&angles), f32s(dims), f32s(&angles)];
    Case::new("fused", format!("_WgpuFusedConcat rotary {}", by(dims)), node, inputs)
}

/// A convolution of ResNet50 with a scale, a shift, and a rectifier.
fn conv(n: usize) -> Case {
    let node = Node::new("_WgpuFusedConv2D")
        .attr("strides", &[1_i64; 4][..])
        .attr("dilations", &[1_i64; 4][..])
        .attr("padding", "SAME")
        .attr("explicit_paddings", &[] as &[i64])
        .attr("data_format", "NHWC");
    let text = "s0 = Mul<T>(x0, x1); s1 = AddV2<T>(s0, x2); s2 = Relu<T>(s1); return s2";
    let inputs = [f32s(&[n, 56, 56, 64]), f32s(&[3, 3, 64, 64]), f32s(&[64]), f32s(&[64])];
    let name = format!("_WgpuFusedConv2D scale, shift, relu 3×3 {n}×56×56×64→64");
    Case::new("fused", name, epilogue(node, 2, text, &[]), inputs)
        .flops(2.0 * (n * 56 * 56 * 64 * 64 * 9) as f64)
}

fn attention(
    dtype: DType,
    [batch, heads]: [usize; 2],
    length: usize,
    depth: usize,
    causal: bool,
) -> Case {
    let node = Node::new("_WgpuFusedAttention")
        .attr("T", dtype)
        .attr("Textra", &[] as &[DType])
        .attr("Tsaved", &[] as &[DType])
        .attr("layout", "BTNH")
        .attr("scale", 0.125_f32)
        .attr("mask", "none")
        .attr("keep", true)
        .attr("fill", -1e9_f32)
        .attr("causal", causal)
        .attr("zero_masked", false)
        .attr("broadcast", false);
    let dims = [batch, length, heads, depth];
    let products =
        (batch * heads * length * length * depth) as f64 * if causal { 0.5 } else { 1.0 };
    let how = if causal { " causal" } else { "" };
    let name = format!("_WgpuFusedAttention {dtype} {}{how}", by(&dims));
    Case::new(
        "fused",
        name,
        node,
        [tensor(dtype, &dims), tensor(dtype, &dims), tensor(dtype, &dims)],
    )
    .flops(4.0 * products)
}
