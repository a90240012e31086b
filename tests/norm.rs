//! Bias and batch normalization against plain f64, in the styles of a software adapter and of a
//! GPU.

#[path = "numeric/close.rs"]
mod close;

use close::assert_within;
use tensorflow_wgpu::device::Profile;
use tensorflow_wgpu::dtype::DType::{self, *};
use tensorflow_wgpu::local::{Node, Session};
use tensorflow_wgpu::{Error, HostTensor};

/// Sessions on the adapter as it is, and under a GPU's profile.
fn sessions() -> [Session; 2] {
    let shared = Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers");
    [shared, Session::under(Profile::NVIDIA).unwrap()]
}

/// Values in [center - 1, center + 1) without a pattern along any dimension.
fn values(dtype: DType, dims: &[usize], center: f64, seed: u64) -> HostTensor {
    let mut state = seed * 2 + 1;
    let mut next = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 23) - 1.0
    };
    let v: Vec<f64> = (0..dims.iter().product()).map(|_| center + next()).collect();
    match dtype {
        I32 => HostTensor::i32(dims, &v.iter().map(|v| (v * 100.0) as i32).collect::<Vec<_>>()),
        _ => HostTensor::floats(dtype, dims, &v),
    }
}

#[track_caller]
fn assert_close(got: &HostTensor, wanted: &[f64], scale: f64, context: &str) {
    let tolerance = scale
        * match got.dtype {
            F16 => 2e-3,
            BF16 => 1.6e-2,
            F32 => 2e-5,
            F64 => 1e-12,
            _ => 0.0,
        };
    assert_within(got, wanted, |w| tolerance * (1.0 + w.abs()), context);
}

/// The channel of each element.
fn channel_of(dims: &[usize], last: bool) -> impl Fn(usize) -> usize {
    let axis = if last { dims.len() - 1 } else { 1 };
    let (inner, channels) = (dims[axis + 1..].iter().product::<usize>(), dims[axis]);
    move |i| i / inner % channels
}

#[test]
fn bias_is_added_and_its_gradient_sums() {
    for mut session in sessions() {
        // Every second one is misaligned; those of eight channels are added in vec4s otherwise.
        let shapes: [&[usize]; 11] = [
            &[4, 3],
            &[1, 1],
            &[7, 5, 3],
            &[2, 3, 4, 5],
            &[2, 3, 2, 3, 4],
            &[0, 3],
            &[500, 16, 33],
            &[40, 8],
            &[6001, 8],
            &[0, 8],
            &[70, 3, 20],
        ];
        for (k, dims) in shapes.into_iter().enumerate() {
            for (format, last) in [("NHWC", true), ("NCHW", false)] {
                session.misalign = k % 2;
                let channels = dims[if last { dims.len() - 1 } else { 1 }];
                let channel = channel_of(dims, last);
                for dtype in [F32, F16, BF16, F64, I32] {
                    if !session.runs(dtype) {
                        continue;
                    }
                    let (x, b) = (values(dtype, dims, 0.0, 1), values(dtype, &[channels], 0.5, 2));
                    let (xs, bs) = (x.to_f64(), b.to_f64());
                    let node = Node::new("BiasAdd").attr("T", dtype).attr("data_format", format);
                    let y = session.run(&node, &[x.clone().into(), b.clone().into()]).unwrap();
                    let wanted: Vec<f64> =
                        xs.iter().enumerate().map(|(i, v)| v + bs[channel(i)]).collect();
                    assert_close(&y[0], &wanted, 1.0, &format!("BiasAdd {format} {dims:?}"));
                    if last {
                        let y = session
                            .run(
                                &Node::new("BiasAddV1").attr("T", dtype),
                                &[x.clone().into(), b.into()],
                            )
                            .unwrap();
                        assert_close(&y[0], &wanted, 1.0, "BiasAddV1");
                    }
                    if dtype == I32 {
                        continue;
                    }
                    let node =
                        Node::new("BiasAddGrad").attr("T", dtype).attr("data_format", format);
                    let db = session.run(&node, &[x.into()]).unwrap();
                    let mut wanted = vec![0.0; channels];
                    xs.iter().enumerate().for_each(|(i, v)| wanted[channel(i)] += v);
                    let scale = 1.0 + (xs.len() as f64).sqrt() / 100.0;
                    assert_close(&db[0], &wanted, scale, &format!("BiasAddGrad {format} {dims:?}"));
                }
            }
        }
    }
}

#[test]
fn bias_beyond_one_binding_is_added_in_windows() {
    let limit = 1 << 20;
    let session = &mut Session::binding(limit as u64).unwrap();
    for (format, channels) in [("NHWC", 7), ("NCHW", 7), ("NHWC", 8)] {
        let rows = limit / 4 / channels + 1000;
        let x: Vec<f32> = (0..rows * channels).map(|i| (i % 1024) as f32).collect();
        let bias: Vec<f32> = (0..channels).map(|i| i as f32 * 2048.0).collect();
        let node = Node::new("BiasAdd").attr("T", F32).attr("data_format", format);
        let inputs = [
            HostTensor::f32(&[rows, channels], &x).into(),
            HostTensor::f32(&[channels], &bias).into(),
        ];
        let y = session.run(&node, &inputs).unwrap();
        let got = y[0].values::<f32>();
        assert!(
            got.iter()
                .enumerate()
                .all(|(i, v)| *v == (i % 1024) as f32 + (i % channels) as f32 * 2048.0)
        );
    }
}

#[test]
fn bias_arguments_are_checked() {
    let session = &mut sessions()[0];
    let mut message = |x: &[usize], b: &[usize], format: &str| {
        let node = Node::new("BiasAdd").attr("T", F32).attr("data_format", format);
        match session.run(&node, &[values(F32, x, 0.0, 1).into(), values(F32, b, 0.0, 1).into()]) {
            Err(Error::InvalidArgument(m)) => m,
            other => panic!("{other:?}"),
        }
    };
    assert!(message(&[3], &[3], "NHWC").contains("Input tensor must be at least 2D: [3]"));
    assert!(message(&[2, 3], &[3, 1], "NHWC").contains("Biases must be 1D: [3,1]"));
    let count =
        "Must provide as many biases as the last dimension of the input tensor: [2] vs. [2,3]";
    assert!(message(&[2, 3], &[2], "NHWC").contains(count));
    assert!(message(&[2, 3], &[2], "NCHW").contains(count));
}

struct Case {
    dims: &'static [usize],
    format: &'static str,
    center: f64,
}

const CASES: &[Case] = &[
    Case { dims: &[2, 3, 4, 5], format: "NHWC", center: 0.5 },
    Case { dims: &[2, 5, 3, 4], format: "NCHW", center: 0.5 },
    Case { dims: &[2, 3, 3, 8], format: "NHWC", center: 0.5 },
    Case { dims: &[4, 45, 50, 4], format: "NHWC", center: 1.0 },
    Case { dims: &[1, 1, 1, 3], format: "NHWC", center: 0.0 },
    Case { dims: &[2, 3, 2, 2, 7], format: "NDHWC", center: 1.0 },
    Case { dims: &[2, 7, 3, 2, 3], format: "NCDHW", center: 1.0 },
    Case { dims: &[8, 33, 31, 16], format: "NHWC", center: -1.0 },
    Case { dims: &[5, 3, 101, 67], format: "NCHW", center: 2.0 },
    Case { dims: &[3, 2, 2, 300], format: "NHWC", center: 100.0 },
];

/// Mean and variance (of the sample) of each channel.
fn moments(x: &[f64], channels: usize, channel: &dyn Fn(usize) -> usize) -> (Vec<f64>, Vec<f64>) {
    let per_channel = (x.len() / channels) as f64;
    let (mut mean, mut variance) = (vec![0.0; channels], vec![0.0; channels]);
    x.iter().enumerate().for_each(|(i, v)| mean[channel(i)] += v / per_channel);
    x.iter()
        .enumerate()
        .for_each(|(i, v)| variance[channel(i)] += (v - mean[channel(i)]).powi(2) / per_channel);
    (mean, variance)
}

fn node(op: &str, version: u32, dtype: DType, format: &str, is_training: bool) -> Node {
    let name = if version == 1 { op.to_owned() } else { format!("{op}V{version}") };
    let node = Node::new(&name).attr("T", dtype).attr("epsilon", 1e-3).attr("data_format", format);
    let node = node.attr("is_training", is_training);
    if version == 1 { node } else { node.attr("U", F32) }
}

const EPSILON: f64 = 1e-3f32 as f64;

#[test]
fn batch_norm_forward() {
    for mut session in sessions() {
        for (k, case) in CASES.iter().enumerate() {
            session.misalign = k % 2;
            let last = case.format.ends_with('C');
            let channels = case.dims[if last { case.dims.len() - 1 } else { 1 }];
            let channel = channel_of(case.dims, last);
            for (dtype, version) in [(F32, 1), (F32, 2), (F32, 3), (F16, 3), (BF16, 2)] {
                let x = values(dtype, case.dims, case.center, 3);
                let [scale, offset, mean, variance] = [1.0, 0.0, 0.2, 2.0]
                    .map(|center| values(F32, &[channels], center, 4 + version as u64));
                let xs = x.to_f64();
                let (batch_mean, batch_variance) = moments(&xs, channels, &channel);
                let total = (xs.len() / channels) as f64;
                for (is_training, factor) in [(true, 1.0f32), (true, 0.25), (false, 1.0)] {
                    let node = node("FusedBatchNorm", version, dtype, case.format, is_training)
                        .attr("exponential_avg_factor", factor);
                    let inputs = [&x, &scale, &offset, &mean, &variance].map(|t| t.clone().into());
                    let out = session.run(&node, &inputs).unwrap();
                    assert_eq!(out.len(), if version == 3 { 6 } else { 5 });
                    let (m, v) = if is_training {
                        (batch_mean.clone(), batch_variance.clone())
                    } else {
                        (mean.to_f64(), variance.to_f64())
                    };
                    let context = format!(
                        "{:?} {} training {is_training} factor {factor}",
                        case.dims, case.format
                    );
                    let (s, o) = (scale.to_f64(), offset.to_f64());
                    let y: Vec<f64> = xs
                        .iter()
                        .enumerate()
                        .map(|(i, x)| {
                            let c = channel(i);
                            (x - m[c]) / (v[c] + EPSILON).sqrt() * s[c] + o[c]
                        })
                        .collect();
                    let scale = 1.0 + case.center.abs();
                    assert_close(&out[0], &y, scale, &format!("y {context}"));
                    assert_close(&out[3], &m, 1.0, &format!("saved mean {context}"));
                    assert_close(&out[4], &v, 1.0, &format!("saved variance {context}"));
                    let f = f64::from(factor);
                    let blend = |old: &HostTensor, new: &[f64], correction: f64| -> Vec<f64> {
                        let blended = |(o, n): (f64, &f64)| (1.0 - f) * o + f * correction * n;
                        old.to_f64().into_iter().zip(new).map(blended).collect()
                    };
                    let correction = if is_training { total / (total - 1.0).max(1.0) } else { 1.0 };
                    assert_close(&out[1], &blend(&mean, &m, 1.0), 1.0, &format!("mean {context}"));
                    assert_close(
                        &out[2],
                        &blend(&variance, &v, correction),
                        1.0,
                        &format!("variance {context}"),
                    );
                }
            }
        }
    }
}

#[test]
fn batch_norm_gradient() {
    for mut session in sessions() {
        for case in CASES {
            let last = case.format.ends_with('C');
            let channels = case.dims[if last { case.dims.len() - 1 } else { 1 }];
            let channel = channel_of(case.dims, last);
            for (dtype, version) in [(F32, 1), (F32, 2), (F32, 3), (F16, 2), (BF16, 3)] {
                let (x, dy) =
                    (values(dtype, case.dims, case.center, 3), values(dtype, case.dims, 0.25, 5));
                let (xs, dys) = (x.to_f64(), dy.to_f64());
                let (mean, variance) = moments(&xs, channels, &channel);
                let scale = values(F32, &[channels], 1.5, 6);
                let (mean, variance) = (
                    HostTensor::floats(F32, &[channels], &mean),
                    HostTensor::floats(F32, &[channels], &variance),
                );
                let (m, v, s) = (mean.to_f64(), variance.to_f64(), scale.to_f64());
                let total = (xs.len() / channels) as f64;
                let (mut sum, mut product) = (vec![0.0; channels], vec![0.0; channels]);
                for (i, g) in dys.iter().enumerate() {
                    sum[channel(i)] += g;
                    product[channel(i)] += g * (xs[i] - m[channel(i)]);
                }
                for is_training in [true, false] {
                    let node = node("FusedBatchNormGrad", version, dtype, case.format, is_training);
                    let mut inputs =
                        vec![dy.clone(), x.clone(), scale.clone(), mean.clone(), variance.clone()];
                    if version == 3 {
                        inputs.push(HostTensor::f32(&[0], &[]));
                    }
                    let inputs: Vec<_> = inputs.into_iter().map(Into::into).collect();
                    let out = session.run(&node, &inputs).unwrap();
                    let inverse = |c: usize| 1.0 / (v[c] + EPSILON).sqrt();
                    let dx: Vec<f64> = dys
                        .iter()
                        .enumerate()
                        .map(|(i, g)| {
                            let c = channel(i);
                            let training =
                                (sum[c] + (xs[i] - m[c]) * product[c] * inverse(c).powi(2)) / total;
                            s[c] * inverse(c) * (g - if is_training { training } else { 0.0 })
                        })
                        .collect();
                    let context = format!("{:?} {} training {is_training}", case.dims, case.format);
                    let dscale: Vec<f64> = (0..channels).map(|c| product[c] * inverse(c)).collect();
                    let magnitude = total.sqrt().max(1.0)
                        * if case.dims[..3] == [1, 1, 1] { 50.0 } else { 2.0 };
                    assert_close(
                        &out[0],
                        &dx,
                        if case.dims[..3] == [1, 1, 1] { 50.0 } else { 2.0 },
                        &format!("dx {context}"),
                    );
                    assert_close(&out[1], &dscale, magnitude, &format!("scale {context}"));
                    assert_close(&out[2], &sum, magnitude, &format!("offset {context}"));
                    assert!(out[3].bytes.is_empty() && out[4].bytes.is_empty());
                }
            }
        }
    }
}

#[test]
fn the_variance_survives_a_large_mean() {
    for mut session in sessions() {
        let x = values(F32, &[64, 16, 16, 3], 1000.0, 9);
        let (mean, variance) = moments(&x.to_f64(), 3, &|i| i % 3);
        let empty = HostTensor::f32(&[0], &[]);
        let inputs =
            [x, values(F32, &[3], 1.0, 1), values(F32, &[3], 1.0, 1), empty.clone(), empty]
                .map(Into::into);
        let node = node("FusedBatchNorm", 3, F32, "NHWC", true).attr("exponential_avg_factor", 1.0);
        let out = session.run(&node, &inputs).unwrap();
        assert_close(&out[3], &mean, 1.0, "mean");
        assert_close(&out[4], &variance, 1.0, "variance");
    }
}

#[test]
fn empty_batches() {
    let session = &mut sessions()[0];
    let ones = || values(F32, &[3], 1.0, 1);
    let x = HostTensor::f32(&[0, 2, 2, 3], &[]);
    for is_training in [true, false] {
        let forward =
            node("FusedBatchNorm", 3, F32, "NHWC", is_training).attr("exponential_avg_factor", 1.0);
        let inputs = [x.clone(), ones(), ones(), ones(), ones()].map(Into::into);
        let out = session.run(&forward, &inputs).unwrap();
        assert!(out[1].to_f64().iter().chain(&out[2].to_f64()).all(|v| v.is_nan()));
        let backward = node("FusedBatchNormGrad", 2, F32, "NHWC", is_training);
        let inputs = [x.clone(), x.clone(), ones(), ones(), ones()].map(Into::into);
        let out = session.run(&backward, &inputs).unwrap();
        assert_eq!(out[0].dims, x.dims);
        assert_eq!((out[1].to_f64(), out[2].to_f64()), (vec![0.0; 3], vec![0.0; 3]));
    }
}

#[test]
fn batch_norm_arguments_are_checked() {
    let session = &mut sessions()[0];
    let mut message = |x: &[usize], sizes: [&[usize]; 4], training: bool, factor: f32| {
        let inputs: Vec<_> =
            [x].into_iter().chain(sizes).map(|dims| values(F32, dims, 1.0, 1).into()).collect();
        let node =
            node("FusedBatchNorm", 3, F32, "NHWC", training).attr("exponential_avg_factor", factor);
        match session.run(&node, &inputs) {
            Err(Error::InvalidArgument(m)) => m,
            other => panic!("{other:?}"),
        }
    };
    let (x, ok): (&[usize], &[usize]) = (&[2, 3, 4, 5], &[5]);
    assert!(
        message(&[2, 3, 5], [ok; 4], true, 1.0).contains("input must be 4 or 5-dimensional[2,3,5]")
    );
    assert!(
        message(x, [&[5, 1], ok, ok, ok], true, 1.0).contains("scale must be 1-dimensional[5,1]")
    );
    let elements = "offset must have the same number of elements as the channels of x, got 4 and 5";
    assert!(message(x, [ok, &[4], ok, ok], true, 1.0).contains(elements));
    assert!(
        message(x, [ok, ok, &[0], ok], true, 0.5)
            .contains("When exponential_avg_factor != 1, mean must have")
    );
    assert!(
        message(x, [ok, ok, ok, &[4]], false, 1.0)
            .contains("When is_training=false, variance must have")
    );
}

#[test]
fn global_normalization_of_old_graphs() {
    let (dims, channels, epsilon) = ([2, 3, 2, 5], 5, 0.01f32);
    for (dtype, scaled) in [(F32, true), (F32, false), (F16, true)] {
        let [x, dy] = [11, 12].map(|seed| values(dtype, &dims, 0.0, seed));
        let [mean, variance, beta, gamma] = [(0.5, 1), (4.0, 2), (1.0, 3), (2.0, 4)]
            .map(|(center, seed)| values(dtype, &[channels], center, seed));
        let [xv, dv, mv, vv, bv, gv] =
            [&x, &dy, &mean, &variance, &beta, &gamma].map(HostTensor::to_f64);
        let inverse: Vec<f64> =
            vv.iter().map(|v| (v + f64::from(epsilon)).sqrt().recip()).collect();
        let slope: Vec<f64> =
            (0..channels).map(|c| inverse[c] * if scaled { gv[c] } else { 1.0 }).collect();
        let each = |f: &dyn Fn(usize, usize) -> f64| {
            (0..xv.len()).map(|i| f(i, i % channels)).collect::<Vec<f64>>()
        };
        let sum = |f: &dyn Fn(usize) -> f64| {
            (0..channels)
                .map(|c| (c..xv.len()).step_by(channels).map(f).sum())
                .collect::<Vec<f64>>()
        };
        let (sums, products) = (sum(&|i| dv[i]), sum(&|i| dv[i] * (xv[i] - mv[i % channels])));
        let channel = |f: &dyn Fn(usize) -> f64| (0..channels).map(f).collect::<Vec<f64>>();
        let wanted = [
            each(&|i, c| dv[i] * slope[c]),
            channel(&|c| -sums[c] * slope[c]),
            channel(&|c| -0.5 * products[c] * slope[c] * inverse[c] * inverse[c]),
            sums.clone(),
            channel(&|c| if scaled { products[c] * inverse[c] } else { 0.0 }),
        ];
        let node = |op: &str| {
            let node = Node::new(op).attr("T", dtype).attr("variance_epsilon", epsilon);
            node.attr("scale_after_normalization", scaled)
        };
        for session in &mut sessions() {
            let inputs = [&x, &mean, &variance, &beta, &gamma].map(|t| t.clone().into());
            let y = session.run(&node("BatchNormWithGlobalNormalization"), &inputs).unwrap();
            assert_close(
                &y[0],
                &each(&|i, c| (xv[i] - mv[c]) * slope[c] + bv[c]),
                1.0,
                "global normalization",
            );
            let inputs = [&x, &mean, &variance, &gamma, &dy].map(|t| t.clone().into());
            let got = session.run(&node("BatchNormWithGlobalNormalizationGrad"), &inputs).unwrap();
            for (output, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
                assert_close(got, wanted, 10.0, &format!("output {output} of the gradient"));
            }
        }
    }
}
