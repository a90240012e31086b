//! Matrix products and convolutions with epilogues against f64 sums and functions, with both tile
//! tables.

mod numeric;
#[path = "numeric/products.rs"]
mod products;

use numeric::bindings::{scheduling, under};
use numeric::{Random, assert_close, session};
use products::{Conv, Layout, matmul, permuted};
use tensorflow_wgpu::device::{Profile, Schedule};
use tensorflow_wgpu::kernels::contract::tables;
use tensorflow_wgpu::kernels::expression::Expression;
use tensorflow_wgpu::kernels::scalar::row::Value;
use tensorflow_wgpu::local::{Input, Node};
use tensorflow_wgpu::{DType, Error, HostTensor};

/// The shape of an extra operand, for a result of some shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extra {
    Scalar,
    /// One element for each channel.
    Channel,
    /// The same, with ones for the other dimensions.
    Spread,
    Full,
    /// One element for each index of the first dimension. For matrices that is one for each row; a
    /// contraction reads no other ones.
    Rows,
}

/// An epilogue, its operands and parameters.
struct Sample {
    /// `T` stands for the base op's type, `U` for that of the result.
    text: &'static str,
    extras: &'static [Extra],
    constants: &'static [f32],
}

const SAMPLES: &[Sample] = &[
    Sample { text: "x: T; c: 0; return x0", extras: &[], constants: &[] },
    Sample {
        text: "x: T, T; c: 0; s0 = AddV2<T>(x0, x1); s1 = Relu<T>(s0); return s1",
        extras: &[Extra::Channel],
        constants: &[],
    },
    Sample {
        text: "x: T, T, T, T, T, T; c: 0; s0 = Mul<T>(x0, x1); s1 = AddV2<T>(s0, x2); s2 = \
               AddV2<T>(s1, x3); s3 = Sub<T>(s2, x4); s4 = AddV2<T>(s3, x5); return s4",
        extras: &[Extra::Scalar, Extra::Spread, Extra::Full, Extra::Channel, Extra::Channel],
        constants: &[],
    },
    Sample {
        text: "x: T, T; c: 0; s0 = Sub<T>(x1, x0); s1 = Cast<T, U>(s0); return s1",
        extras: &[Extra::Full],
        constants: &[],
    },
    Sample {
        text: "x: T, U; c: 0; s0 = Cast<T, U>(x0); s1 = Mul<U>(s0, x1); return s1",
        extras: &[Extra::Channel],
        constants: &[],
    },
    Sample {
        text: "x: T, T; c: 0; s0 = Mul<T>(x0, x1); return s0",
        extras: &[Extra::Rows],
        constants: &[],
    },
];

const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::F64];

fn other(dtype: DType) -> DType {
    match dtype {
        DType::F16 if !session().runs(DType::F64) => DType::F32,
        DType::F32 => DType::F16,
        DType::F16 => DType::F64,
        DType::BF16 => DType::F32,
        _ => DType::BF16,
    }
}

/// The result of a contraction: its values, its shape, the dimension of its channels, and the
/// number of products in an element.
struct Result {
    values: Vec<f64>,
    dims: Vec<usize>,
    axis: usize,
    depth: usize,
}

impl Result {
    fn extra_dims(&self, extra: Extra) -> Vec<usize> {
        let only = |at: usize| {
            (0..self.dims.len()).map(|d| if d == at { self.dims[d] } else { 1 }).collect()
        };
        match extra {
            Extra::Scalar => vec![],
            Extra::Channel => vec![self.dims[self.axis]],
            Extra::Spread => only(self.axis),
            Extra::Full => self.dims.clone(),
            Extra::Rows => only(0),
        }
    }

    /// The operand's element for the result's element `i`.
    fn element(&self, extra: Extra, i: usize) -> usize {
        let after = |d: usize| self.dims[d + 1..].iter().product::<usize>();
        match extra {
            Extra::Scalar => 0,
            Extra::Channel | Extra::Spread => i / after(self.axis) % self.dims[self.axis],
            Extra::Full => i,
            Extra::Rows => i / after(0),
        }
    }
}

/// Runs the base op of `node`, whose operands are `a` and `b`, with the samples whose turn it is.
/// Compiling takes most of the time, so float32 has two samples for each shape, one for each tile
/// table, and other types have one.
fn check(
    turn: &mut usize,
    node: &Node,
    [a, b]: [&HostTensor; 2],
    result: &Result,
    misalign: usize,
    what: &str,
) {
    for _ in 0..if a.dtype == DType::F32 { 2 } else { 1 } {
        *turn += 1;
        let (profile, sample) = (
            Profile::DISTINCT[*turn % Profile::DISTINCT.len()],
            &SAMPLES[(*turn + *turn / SAMPLES.len()) % SAMPLES.len()],
        );
        check_sample(profile, sample, *turn, node, [a, b], result, misalign, what);
    }
}

/// Does this for one sample under one profile.
#[expect(clippy::too_many_arguments, reason = "each is a part of a case")]
fn check_sample(
    profile: Profile,
    sample: &Sample,
    turn: usize,
    node: &Node,
    [a, b]: [&HostTensor; 2],
    result: &Result,
    misalign: usize,
    what: &str,
) {
    let dtype = a.dtype;
    let mut random = Random::new(turn as u64);
    let to = other(dtype);
    let text = sample.text.replace("U>", &format!("{to}>")).replace(", U", &format!(", {to}"));
    let text = text
        .replace("T>", &format!("{dtype}>"))
        .replace(" T", &format!(" {dtype}"))
        .replace("<T", &format!("<{dtype}"));
    let types: Vec<DType> = (sample.extras.iter())
        .map(|_| if sample.text.contains("x: T, U") { to } else { dtype })
        .collect();
    let output = if sample.text.contains('U') { to } else { dtype };
    let mut inputs: Vec<Input> = vec![a.clone().into(), b.clone().into()];
    let mut extras = Vec::new();
    for (extra, dtype) in sample.extras.iter().zip(&types) {
        let (tensor, values) = random.tensor(*dtype, &result.extra_dims(*extra));
        inputs.push(tensor.into());
        extras.push((*extra, values));
    }
    let expression: Expression = text.parse().expect(&text);
    let want: Vec<f64> = (result.values.iter().enumerate())
        .map(|(i, x)| {
            let e: Vec<f64> =
                extras.iter().map(|(extra, v)| v[result.element(*extra, i)]).collect();
            let given: Vec<Value> = std::iter::once(*x).chain(e).map(Value::Float).collect();
            match expression.evaluate(&given, sample.constants)[0] {
                Value::Float(v) => v,
                Value::Int(_) => unreachable!("no sample has integers"),
            }
        })
        .collect();
    let node = node.clone().attr("T", dtype).attr("T_out", output).attr("T_extra", &types[..]);
    let node = node.attr("expression", &text[..]).attr("constants", sample.constants);
    let what = format!("{what} {dtype} {profile} misaligned by {misalign}: {text}");
    let mut session = under(profile, session);
    session.misalign = misalign;
    // A sum between two 16-bit values may be rounded to either.
    let largest = result.values.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
    let rounded = numeric::either(dtype, largest);
    let got = session.run(&node, &inputs).expect(&what);
    assert_eq!((got[0].dtype, &got[0].dims[..]), (output, &result.dims[..]), "{what}");
    // Sums of 16-bit floats are added in float32, to whatever type they are converted.
    let got = if dtype == DType::F64 {
        got[0].clone()
    } else {
        let least = if output == DType::F64 { DType::F32 } else { output };
        HostTensor::floats(least, &got[0].dims, &got[0].to_f64())
    };
    assert_close(&got, &want, result.depth as f64 + 4.0 + rounded, &what);
}

#[test]
fn matrix_products() {
    let mut turn = 0;
    for dtype in session().supported(FLOATS) {
        for [m, k, n] in [
            [1, 1, 1],
            [7, 13, 5],
            [8, 16, 64],
            [65, 33, 66],
            [1, 40, 12],
            [40, 3, 1],
            [12, 8, 20],
            [36, 8, 6],
        ] {
            let (ta, tb) = (m % 2 == 0, n % 3 == 0);
            let mut random = Random::new((m * 100 + k * 10 + n) as u64);
            let (a, av) = random.tensor(dtype, &if ta { [k, m] } else { [m, k] });
            let (b, bv) = random.tensor(dtype, &if tb { [n, k] } else { [k, n] });
            let values = matmul(&av, &bv, [m, k, n], ta, tb);
            let result = Result { values, dims: vec![m, n], axis: 1, depth: k };
            let node =
                Node::new("_WgpuFusedMatMul").attr("transpose_a", ta).attr("transpose_b", tb);
            check(&mut turn, &node, [&a, &b], &result, 0, &format!("{m}x{k}x{n} {ta} {tb}"));
        }
    }
}

/// Persistent workgroups and stream-K, which apply the epilogue of split tiles in the second
/// dispatch: every sample in turn, including one with too many operands to be split, and packed
/// results.
#[test]
fn schedules() {
    let tile = tables::all().find(|t| t.steps(1).is_some() && t.m() == 64 && t.n() == 64);
    let tile = tile.expect("a tile of 64 rows and columns").id();
    let base = Conv { filters: 68, channels: 8, depth: 8, input: [1, 13, 11], ..Conv::default() };
    for (turn, sample) in SAMPLES.iter().enumerate() {
        let dtype = [DType::F32, DType::F16, DType::BF16][turn % 3];
        let schedule = [Schedule::StreamK, Schedule::StreamK, Schedule::Persistent][turn / 2 % 3];
        let profile = scheduling(schedule, tile, 5);
        let (m, k, n) = (130, 50, if turn % 2 == 0 { 68 } else { 67 });
        let mut random = Random::new(turn as u64);
        let (a, av) = random.tensor(dtype, &[m, k]);
        let (b, bv) = random.tensor(dtype, &[k, n]);
        let values = matmul(&av, &bv, [m, k, n], false, false);
        let node =
            Node::new("_WgpuFusedMatMul").attr("transpose_a", false).attr("transpose_b", false);
        let result = Result { values, dims: vec![m, n], axis: 1, depth: k };
        let what = format!("{schedule:?}");
        check_sample(profile, sample, turn, &node, [&a, &b], &result, 0, &what);
        if turn % 2 == 0 {
            let layout = if turn % 4 == 0 { Layout::Last } else { Layout::First };
            let conv = Conv { layout, ..base.clone() };
            let ([x, w], result) = convolved(&conv, dtype);
            check_sample(profile, sample, turn, &conv.node(), [&x, &w], &result, 0, &what);
        }
    }
}

/// A long contraction is split into chunks; the epilogue is applied once, to their sum.
#[test]
fn a_long_contraction_has_one_epilogue() {
    let mut turn = 0;
    for dtype in [DType::F32, DType::F16] {
        for n in [8, 5, 8, 5] {
            let (m, k) = (3, 20_000);
            let mut random = Random::new(n as u64);
            let (a, av) = random.tensor(dtype, &[m, k]);
            let (b, bv) = random.tensor(dtype, &[k, n]);
            let values = matmul(&av, &bv, [m, k, n], false, false);
            let result = Result { values, dims: vec![m, n], axis: 1, depth: 200 };
            let node =
                Node::new("_WgpuFusedMatMul").attr("transpose_a", false).attr("transpose_b", false);
            check(&mut turn, &node, [&a, &b], &result, 0, "long");
        }
    }
}

#[test]
fn operands_at_any_address() {
    let mut turn = 0;
    for dtype in [DType::F32, DType::F16] {
        let [m, k, n] = [16, 8, 12];
        let mut random = Random::new(9);
        let (a, av) = random.tensor(dtype, &[m, k]);
        let (b, bv) = random.tensor(dtype, &[k, n]);
        let values = matmul(&av, &bv, [m, k, n], false, false);
        let node =
            Node::new("_WgpuFusedMatMul").attr("transpose_a", false).attr("transpose_b", false);
        let result = Result { values, dims: vec![m, n], axis: 1, depth: k };
        check(&mut turn, &node, [&a, &b], &result, 1, "misaligned");
    }
}

#[test]
fn batches_broadcast() {
    let mut turn = 0;
    for dtype in session().supported(FLOATS) {
        for (x, y) in
            [(&[2usize][..], &[2usize][..]), (&[3], &[]), (&[2, 1, 3], &[4, 1]), (&[1], &[3])]
        {
            for [m, k, n] in [[3, 5, 7], [4, 8, 12]] {
                let mut random = Random::new((m + n) as u64);
                let (a, av) = random.tensor(dtype, &[x, &[m, k]].concat());
                let (b, bv) = random.tensor(dtype, &[y, &[k, n]].concat());
                let batch = tensorflow_wgpu::layout::broadcast_dims(x, y).unwrap();
                let mut values = Vec::new();
                for z in 0..batch.iter().product() {
                    let (i, j) = (permuted(z, &batch, x) * m * k, permuted(z, &batch, y) * k * n);
                    values.extend(matmul(
                        &av[i..i + m * k],
                        &bv[j..j + k * n],
                        [m, k, n],
                        false,
                        false,
                    ));
                }
                let dims = [&batch[..], &[m, n]].concat();
                let result = Result { values, axis: dims.len() - 1, dims, depth: k };
                let node =
                    Node::new("_WgpuFusedBatchMatMulV2").attr("adj_x", false).attr("adj_y", false);
                check(&mut turn, &node, [&a, &b], &result, 0, &format!("{x:?} {y:?} {m}x{k}x{n}"));
            }
        }
    }
}

/// Products of int8 as in quantized layers: scaled by rows and channels, with a bias. They include
/// a split contraction, results of few columns, and operands at any address.
#[test]
fn products_of_int8() {
    let text = "x: int32, float32, float32, float32; c: 0; s0 = Cast<int32, float32>(x0); s1 = \
                Mul<float32>(x1, x2); s2 = RealDiv<float32>(s0, s1); s3 = AddV2<float32>(s2, \
                x3); s4 = Cast<float32, U>(s3); return s4";
    let cases: [(&[usize], [usize; 3]); 7] = [
        (&[], [5, 7, 12]),
        (&[], [64, 48, 40]),
        (&[2, 3], [4, 16, 8]),
        (&[3], [5, 9, 3]),
        (&[], [1, 33, 20]),
        (&[], [20, 8, 1]),
        (&[], [3, 20_000, 8]),
    ];
    for (turn, (batch, [m, k, n])) in cases.into_iter().enumerate() {
        for (output, transposed) in [(DType::F32, false), (DType::F16, true)] {
            let mut random = Random::new((m + n) as u64);
            let mut int8 = |dims: &[usize]| {
                let values: Vec<i8> =
                    (0..dims.iter().product()).map(|_| random.below(255) as i8).collect();
                let wide: Vec<f64> = values.iter().map(|v| f64::from(*v)).collect();
                (HostTensor::of(DType::I8, dims, &values), wide)
            };
            let (a, av) = int8(&[batch, &[m, k]].concat());
            let (b, bv) = int8(&if transposed { [n, k] } else { [k, n] });
            let rows = batch.iter().product::<usize>() * m;
            let sums = matmul(&av, &bv, [rows, k, n], false, transposed);
            // The scales are the inverse of the usual size of these sums, so that results are about
            // 1.
            let large = 70.0 * (k as f64).sqrt();
            let mut scale = |dims: &[usize]| {
                let count: usize = dims.iter().product();
                let values: Vec<f32> = (0..count)
                    .map(|_| (large * (1.0 + random.below(100) as f64 / 100.0)).sqrt() as f32 * 8.0)
                    .collect();
                let wide: Vec<f64> = values.iter().map(|v| f64::from(*v)).collect();
                (HostTensor::f32(dims, &values), wide)
            };
            let ((channels, cv), (columns, rv)) = (scale(&[n]), scale(&[batch, &[m, 1]].concat()));
            let (bias, biases) = Random::new(3).tensor(DType::F32, &[n]);
            let want: Vec<f64> =
                (0..rows * n).map(|i| sums[i] / (cv[i % n] * rv[i / n]) + biases[i % n]).collect();
            let node = Node::new("_WgpuFusedBatchMatMulV3")
                .attr("T", DType::I8)
                .attr("T_extra", &[DType::F32; 3][..])
                .attr("T_out", output)
                .attr("constants", &[][..] as &[f32])
                .attr("expression", &text.replace('U', output.name())[..])
                .attr("adj_x", false)
                .attr("adj_y", transposed);
            let profile = Profile::DISTINCT[turn % Profile::DISTINCT.len()];
            let mut session = under(profile, session);
            session.misalign = turn % 2;
            let inputs: Vec<Input> = [a, b, channels, columns, bias].map(Input::from).to_vec();
            let what = format!("{batch:?} {m}x{k}x{n} {output} {profile}");
            let got = session.run(&node, &inputs).expect(&what);
            assert_eq!(got[0].dims[..], [batch, &[m, n]].concat()[..], "{what}");
            assert_close(&got[0], &want, 8.0, &what);
        }
    }
}

fn check_conv(turn: &mut usize, conv: &Conv, dtype: DType) {
    let (operands, result) = convolved(conv, dtype);
    check(turn, &conv.node(), operands.each_ref(), &result, 0, &format!("{conv:?}"));
}

/// Random operands of a convolution and its result.
fn convolved(conv: &Conv, dtype: DType) -> ([HostTensor; 2], Result) {
    let mut random = Random::new(conv.channels as u64);
    let (x, xv) = random.tensor(dtype, &conv.input_dims());
    let (w, wv) = random.tensor(dtype, &conv.filter_dims());
    let (values, dims) = conv.forward(&xv, &wv);
    let depth = conv.kernel.iter().product::<usize>() * conv.depth;
    ([x, w], Result { values, axis: conv.axis(), dims, depth })
}

#[test]
fn convolutions() {
    let mut turn = 0;
    for dtype in session().supported(FLOATS) {
        for layout in [Layout::Last, Layout::First] {
            let base = Conv { layout, ..Conv::default() };
            let grouped = Conv { channels: 8, depth: 4, filters: 8, ..base.clone() };
            let pointwise = Conv {
                kernel: [1; 3],
                pads: [[0; 2]; 3],
                stride: [1; 3],
                filters: 12,
                ..base.clone()
            };
            let uneven =
                Conv { channels: 3, depth: 3, filters: 5, stride: [1, 2, 2], ..base.clone() };
            for conv in [base, grouped, pointwise, uneven] {
                check_conv(&mut turn, &conv, dtype);
            }
        }
    }
}

/// Convolutions with few channels have their own program if subgroups share loads. The turns begin
/// with samples for that class: a bias and an activation, no epilogue, and operands of every kind.
#[test]
fn convolutions_of_few_channels() {
    let few = Conv {
        channels: 3,
        depth: 3,
        filters: 32,
        input: [1, 6, 31],
        stride: [1, 2, 2],
        ..Conv::default()
    };
    for mut turn in [0, 20, 32] {
        let profile = Profile::DISTINCT[(turn + 1) % Profile::DISTINCT.len()];
        assert_eq!(profile, Profile::LLVMPIPE);
        check_conv(&mut turn, &few, DType::F32);
    }
}

#[test]
fn convolutions_in_three_dimensions() {
    let mut turn = 0;
    for dtype in session().supported(FLOATS) {
        for layout in [Layout::Last, Layout::First] {
            let base = Conv { op: "Conv3D", spatial: 3, layout, ..Conv::default() };
            let volume = Conv {
                input: [4, 5, 3],
                kernel: [2, 3, 1],
                pads: [[1, 0], [1, 1], [0, 2]],
                stride: [1, 2, 1],
                ..base
            };
            check_conv(&mut turn, &volume, dtype);
        }
    }
}

#[test]
fn depthwise_convolutions() {
    let mut turn = 0;
    for dtype in session().supported(FLOATS) {
        for layout in [Layout::Last, Layout::First] {
            for filters in [1, 3] {
                let op = "DepthwiseConv2dNative";
                let conv = Conv {
                    op,
                    layout,
                    channels: 5,
                    depth: 1,
                    filters,
                    dilation: [1, 1, 2],
                    ..Conv::default()
                };
                check_conv(&mut turn, &conv, dtype);
            }
        }
        // Four channels at once.
        let op = "DepthwiseConv2dNative";
        let four = Conv { op, channels: 8, depth: 1, filters: 1, ..Conv::default() };
        check_conv(&mut turn, &four, dtype);
        // A run of positions.
        let window = Conv { input: [1, 9, 7], kernel: [1, 3, 3], stride: [1; 3], ..four };
        check_conv(&mut turn, &window, dtype);
    }
}

fn biased(dtype: DType) -> Node {
    let text = format!(
        "x: {dtype}, {dtype}; c: 1; s0 = AddV2<{dtype}>(x0, x1); s1 = Mul<{dtype}>(s0, c0); \
         return s1"
    );
    let node = Node::new("_WgpuFusedMatMul").attr("transpose_a", false).attr("transpose_b", false);
    let node = node.attr("T", dtype).attr("T_out", dtype).attr("T_extra", &[dtype][..]);
    node.attr("expression", &text[..]).attr("constants", &[0.5f32][..])
}

#[test]
fn parameters_and_empty_operands() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        let bias = HostTensor::floats(dtype, &[3], &[1.0, -2.0, 4.0]);
        let empty = |dims: &[usize]| HostTensor::floats(dtype, dims, &[]);
        // Without products the sums are zeros.
        let inputs = [empty(&[2, 0]).into(), empty(&[0, 3]).into(), bias.clone().into()];
        let got = session().run(&biased(dtype), &inputs).unwrap();
        assert_eq!(got[0].to_f64(), [0.5, -1.0, 2.0, 0.5, -1.0, 2.0]);
        let full = HostTensor::floats(dtype, &[4, 3], &[1.0; 12]);
        let got = session()
            .run(&biased(dtype), &[empty(&[0, 4]).into(), full.into(), bias.into()])
            .unwrap();
        assert_eq!((&got[0].dims[..], got[0].bytes.len()), (&[0, 3][..], 0));
    }
}

/// The operands of the ops that were fused may be larger than the contraction's result.
#[test]
fn operands_may_enlarge_the_result() {
    let a = HostTensor::f32(&[1, 2], &[1.0, 2.0]);
    let b = HostTensor::f32(&[2, 1], &[3.0, 4.0]);
    for dims in [&[2, 3][..], &[2, 1, 3], &[6]] {
        let extra = HostTensor::f32(dims, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let got = session()
            .run(&biased(DType::F32), &[a.clone().into(), b.clone().into(), extra.into()])
            .unwrap();
        let expected = if dims.len() == 1 { &[1, 6] } else { dims };
        assert_eq!(got[0].dims[..], *expected);
        assert_eq!(got[0].to_f64(), [6.0, 6.5, 7.0, 7.5, 8.0, 8.5]);
    }
}

#[test]
fn errors_name_op_and_shapes() {
    let zeros =
        |dims: &[usize]| Input::from(HostTensor::f32(dims, &vec![0.0; dims.iter().product()]));
    let cases: &[([&[usize]; 3], &str)] = &[
        ([&[2, 3], &[4, 5], &[5]], "Matrix size-incompatible: In[0]: [2,3], In[1]: [4,5]"),
        ([&[2, 3], &[3, 5], &[4]], "_WgpuFusedMatMul: Incompatible shapes: [2,5] vs. [4]"),
    ];
    for (dims, message) in cases {
        match session().run(&biased(DType::F32), &dims.map(zeros)) {
            Err(Error::InvalidArgument(m)) => assert!(m.contains(message), "{m}"),
            result => panic!("{message}: {result:?}"),
        }
    }
    for (name, value) in [("expression", "x: float32; c: 0; return x0"), ("expression", "nonsense")]
    {
        let node = biased(DType::F32).attr(name, value);
        let got = session().run(&node, &[&[2, 3][..], &[3, 5], &[5]].map(zeros));
        assert!(matches!(got, Err(Error::InvalidArgument(_))), "{value}: {got:?}");
    }
}

/// Operands that are read at the result's index, and by channels, in windows of rows, of columns,
/// of images and of slabs.
#[test]
fn results_beyond_one_binding() {
    let refused = numeric::bindings::within(2048, || {
        matrix_products();
        a_long_contraction_has_one_epilogue();
        batches_broadcast();
    });
    assert_eq!(refused + numeric::bindings::within(4096, convolutions), 0);
}
