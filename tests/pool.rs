//! Pooling and its gradients against direct f64 references.

mod numeric;

use numeric::{Random, assert_close, session};
use tensorflow_wgpu::device::Profile;
use tensorflow_wgpu::local::{Input, Node};
use tensorflow_wgpu::{DType, Error, HostTensor};

/// Pooling with three spatial dimensions. One with fewer has leading extents of 1.
#[derive(Debug, Clone)]
struct Case {
    spatial: usize,
    last: bool,
    batch: usize,
    channels: usize,
    input: [usize; 3],
    kernel: [usize; 3],
    stride: [usize; 3],
    padding: &'static str,
    explicit: [[usize; 2]; 3],
}

/// The windows of an output element: the input elements of its image and channel, in row-major
/// order.
struct Windows {
    out: [usize; 3],
    elements: Vec<Vec<usize>>,
}

impl Case {
    fn windows(&self) -> Option<Windows> {
        let (mut out, mut pad) = ([0; 3], [0; 3]);
        for d in 0..3 {
            let (k, s, n) = (self.kernel[d], self.stride[d], self.input[d]);
            (out[d], pad[d]) = match self.padding {
                "SAME" => (n.div_ceil(s), ((n.div_ceil(s) - 1) * s + k).saturating_sub(n) / 2),
                _ => {
                    let [before, after] = self.explicit[d];
                    ((n + before + after).checked_sub(k)? / s + 1, before)
                }
            };
        }
        let count = self.batch * self.channels * out.iter().product::<usize>();
        let mut elements = vec![Vec::new(); count];
        for image in 0..self.batch {
            for channel in 0..self.channels {
                for o in positions(out) {
                    let window = &mut elements[self.at(out, image, channel, o)];
                    for k in positions(self.kernel) {
                        let mut x = [0; 3];
                        let inside = (0..3).all(|d| {
                            x[d] = (o[d] * self.stride[d] + k[d]).wrapping_sub(pad[d]);
                            x[d] < self.input[d]
                        });
                        if inside {
                            window.push(self.at(self.input, image, channel, x));
                        }
                    }
                }
            }
        }
        Some(Windows { out, elements })
    }

    fn at(&self, extents: [usize; 3], image: usize, channel: usize, x: [usize; 3]) -> usize {
        let position = (x[0] * extents[1] + x[1]) * extents[2] + x[2];
        let positions = extents.iter().product::<usize>();
        if self.last {
            (image * positions + position) * self.channels + channel
        } else {
            (image * self.channels + channel) * positions + position
        }
    }

    fn shape(&self, extents: [usize; 3]) -> Vec<usize> {
        let mut dims = vec![self.batch];
        dims.extend(&extents[3 - self.spatial..]);
        dims.insert(if self.last { dims.len() } else { 1 }, self.channels);
        dims
    }

    fn list(&self, values: [usize; 3]) -> Vec<i64> {
        let mut list = vec![1i64];
        list.extend(values[3 - self.spatial..].iter().map(|v| *v as i64));
        list.insert(if self.last { list.len() } else { 1 }, 1);
        list
    }

    fn node(&self, op: &str, dtype: DType) -> Node {
        let mut node = Node::new(op)
            .attr("T", dtype)
            .attr("ksize", &self.list(self.kernel)[..])
            .attr("strides", &self.list(self.stride)[..])
            .attr("padding", self.padding);
        if !op.ends_with("WithArgmax") {
            node = node.attr(
                "data_format",
                match (self.spatial, self.last) {
                    (2, true) => "NHWC",
                    (2, false) => "NCHW",
                    (_, true) => "NDHWC",
                    (_, false) => "NCDHW",
                },
            );
        }
        if self.padding == "EXPLICIT" {
            let mut pads = vec![0i64; 2 * (self.spatial + 2)];
            for d in 3 - self.spatial..3 {
                let at = d + self.spatial - 3 + if self.last { 1 } else { 2 };
                pads[2 * at] = self.explicit[d][0] as i64;
                pads[2 * at + 1] = self.explicit[d][1] as i64;
            }
            node = node.attr("explicit_paddings", &pads[..]);
        }
        node.attr("TInput", dtype)
    }
}

fn positions(extents: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    let [a, b, c] = extents;
    (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |k| [i, j, k])))
}

fn run(node: &Node, inputs: &[Input]) -> Vec<HostTensor> {
    session().run(node, inputs).unwrap_or_else(|e| panic!("{node:?}: {e}"))
}

fn check(case: &Case, dtype: DType, seed: u64) -> bool {
    let Some(windows) = case.windows() else { return false };
    if !session().runs(dtype) {
        return true;
    }
    let mut random = Random::new(seed);
    let (x_dims, y_dims) = (case.shape(case.input), case.shape(windows.out));
    // Few different values, so that ties are common.
    let n: usize = x_dims.iter().product();
    let xv: Vec<f64> = (0..n).map(|_| random.below(5) as f64 - 2.0).collect();
    let x = HostTensor::floats(dtype, &x_dims, &xv);
    let (dy, dv) = random.tensor(dtype, &y_dims);
    let (dd, ddv) = random.tensor(dtype, &x_dims);
    let what = format!("{dtype} {case:?}");
    let suffix = if case.spatial == 3 { "3D" } else { "" };

    let mut taken = Vec::new();
    let (mut max, mut max_dx, mut pick) = (Vec::new(), vec![0.0; n], Vec::new());
    let (mut mean, mut mean_dx) = (Vec::new(), vec![0.0; n]);
    for (o, window) in windows.elements.iter().enumerate() {
        let first = window
            .iter()
            .copied()
            .reduce(|a, b| if xv[b] > xv[a] { b } else { a })
            .expect("an element");
        taken.push(first);
        max.push(xv[first]);
        max_dx[first] += dv[o];
        pick.push(ddv[first]);
        mean.push(window.iter().map(|i| xv[*i]).sum::<f64>() / window.len() as f64);
        for i in window {
            mean_dx[*i] += dv[o] / window.len() as f64;
        }
    }
    let terms = case.kernel.iter().product::<usize>() as f64;
    let y = run(&case.node(&format!("MaxPool{suffix}"), dtype), &[x.clone().into()]).remove(0);
    assert_eq!(y.dims[..], y_dims[..], "{what}");
    assert_close(&y, &max, 0.0, &what);
    let grad = |op: &str, g: &HostTensor| {
        run(&case.node(op, dtype), &[x.clone().into(), y.clone().into(), g.clone().into()])
            .remove(0)
    };
    assert_close(&grad(&format!("MaxPool{suffix}Grad"), &dy), &max_dx, terms, &what);
    assert_close(&grad(&format!("MaxPool{suffix}GradGrad"), &dd), &pick, 0.0, &what);
    if case.padding != "EXPLICIT" {
        let got =
            run(&case.node(&format!("AvgPool{suffix}"), dtype), &[x.clone().into()]).remove(0);
        assert_close(&got, &mean, terms, &what);
        let shape: Vec<i32> = x_dims.iter().map(|d| *d as i32).collect();
        let inputs = [HostTensor::i32(&[shape.len()], &shape).into(), dy.clone().into()];
        let got = run(&case.node(&format!("AvgPool{suffix}Grad"), dtype), &inputs).remove(0);
        assert_close(&got, &mean_dx, terms, &what);
    }
    if case.spatial == 2 {
        let host = |v: [usize; 3]| {
            let list: Vec<i32> = case.list(v).iter().map(|v| *v as i32).collect();
            Input::from(HostTensor::i32(&[4], &list))
        };
        if case.padding != "EXPLICIT" {
            let got = run(
                &case.node("MaxPoolV2", dtype),
                &[x.clone().into(), host(case.kernel), host(case.stride)],
            );
            assert_close(&got[0], &max, 0.0, &what);
            let mut inputs = vec![Input::from(x.clone()), y.clone().into(), dy.clone().into()];
            inputs.extend([host(case.kernel), host(case.stride)]);
            assert_close(
                &run(&case.node("MaxPoolGradV2", dtype), &inputs)[0],
                &max_dx,
                terms,
                &what,
            );
        }
    }
    if case.spatial == 2 && case.last && case.padding != "EXPLICIT" {
        let image = case.channels * case.input.iter().product::<usize>();
        for include in [false, true] {
            let node = |op: &str| {
                case.node(op, dtype)
                    .attr("Targmax", DType::I64)
                    .attr("include_batch_in_index", include)
            };
            let got = run(&node("MaxPoolWithArgmax"), &[x.clone().into()]);
            let want: Vec<i64> =
                taken.iter().map(|i| (if include { *i } else { i % image }) as i64).collect();
            assert_close(&got[0], &max, 0.0, &what);
            assert_eq!(got[1].values::<i64>(), want, "{what}");
            let inputs = [x.clone().into(), dy.clone().into(), got[1].clone().into()];
            assert_close(&run(&node("MaxPoolGradWithArgmax"), &inputs)[0], &max_dx, terms, &what);
            let inputs = [x.clone().into(), dd.clone().into(), got[1].clone().into()];
            assert_close(&run(&node("MaxPoolGradGradWithArgmax"), &inputs)[0], &pick, 0.0, &what);
        }
    }
    true
}

#[test]
fn random_shapes() {
    let mut random = Random::new(4);
    let mut ran = 0;
    for i in 0..80 {
        let spatial = random.pick(&[2, 2, 3]);
        let mut extents = |low, high| {
            let mut list = [1; 3];
            for e in &mut list[3 - spatial..] {
                *e = random.between(low, high);
            }
            list
        };
        let (input, kernel, stride) = (extents(1, 7), extents(1, 4), extents(1, 3));
        let padding = random.pick(if spatial == 2 {
            &["SAME", "VALID", "EXPLICIT"][..]
        } else {
            &["SAME", "VALID"]
        });
        let mut explicit = [[0; 2]; 3];
        if padding == "EXPLICIT" {
            for d in 3 - spatial..3 {
                explicit[d] = [random.below(kernel[d]), random.below(kernel[d])];
            }
        }
        let (last, batch, channels) =
            (random.below(3) > 0, random.between(1, 3), random.pick(&[1, 2, 3, 4, 4, 5, 8, 16]));
        let case =
            Case { spatial, last, batch, channels, input, kernel, stride, padding, explicit };
        let dtype = random.pick(if spatial == 2 {
            &[DType::F32, DType::F64, DType::F16, DType::BF16][..]
        } else {
            &[DType::F32, DType::F16, DType::BF16]
        });
        ran += usize::from(check(&case, dtype, i));
    }
    assert!(ran > 30, "{ran} cases have an output");
}

fn plain(input: usize, channels: usize) -> Case {
    Case {
        spatial: 2,
        last: true,
        batch: 1,
        channels,
        input: [1, input, input],
        kernel: [1, 2, 2],
        stride: [1, 2, 2],
        padding: "VALID",
        explicit: [[0; 2]; 3],
    }
}

/// Whole images, planes of an image, and slabs with the rows around them, with windows that overlap
/// and windows that do not.
#[test]
fn tensors_beyond_one_binding() {
    let refused = numeric::bindings::within(4096, || {
        let base = Case { batch: 5, channels: 4, input: [1, 9, 7], ..plain(1, 1) };
        let large = Case { batch: 2, channels: 4, input: [1, 31, 15], ..base.clone() };
        let overlapping = Case { kernel: [1, 3, 3], padding: "SAME", ..large.clone() };
        let sparse = Case { stride: [1, 3, 3], ..large.clone() };
        let dense = Case { kernel: [1, 5, 4], stride: [1; 3], padding: "SAME", ..large.clone() };
        let padded = Case {
            kernel: [1, 3, 3],
            padding: "EXPLICIT",
            explicit: [[0; 2], [2, 1], [1, 2]],
            ..large.clone()
        };
        let odd = Case { channels: 3, input: [1, 33, 13], ..overlapping.clone() };
        let volume = Case {
            spatial: 3,
            input: [11, 7, 5],
            kernel: [3, 2, 2],
            stride: [2, 2, 2],
            ..large.clone()
        };
        let mut random = Random::new(12);
        for case in [base, large, overlapping, sparse, dense, padded, odd, volume] {
            for last in [true, false] {
                let dtype = random.pick(&[DType::F32, DType::F16, DType::BF16]);
                assert!(check(&Case { last, ..case.clone() }, dtype, 7), "{case:?}");
            }
        }
    });
    assert_eq!(refused, 0);
}

#[test]
fn more_workgroups_than_one_dimension_has() {
    // 4100 x 4100 outputs in workgroups of 256 are 65,665 of them.
    let case = Case { kernel: [1; 3], stride: [1; 3], ..plain(4100, 1) };
    let x: Vec<f32> = (0..4100 * 4100).map(|i| (i % 977) as f32).collect();
    let t = HostTensor::f32(&[1, 4100, 4100, 1], &x);
    assert!(run(&case.node("MaxPool", DType::F32), &[t.into()])[0].values::<f32>() == x);
}

#[test]
fn infinities_and_nan() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    for (x, want, taken) in [
        ([-inf, -inf, -inf, -inf], -inf, 0),
        ([1.0, nan, 3.0, nan], 3.0, 2),
        ([nan, 1.0, 0.0, 1.0], 1.0, 1),
        ([nan, nan, nan, nan], nan, 0),
    ] {
        // One channel, and four that are computed together.
        for channels in [1, 4, 8, 16] {
            let case = plain(2, channels);
            let each = |v: &[f32]| v.iter().flat_map(|v| vec![*v; channels]).collect::<Vec<_>>();
            let x = HostTensor::f32(&[1, 2, 2, channels], &each(&x));
            let y = run(&case.node("MaxPool", DType::F32), &[x.clone().into()]).remove(0);
            for got in y.values::<f32>() {
                assert!(got == want || (got.is_nan() && want.is_nan()), "{got}, want {want}");
            }
            let dy = HostTensor::f32(&[1, 1, 1, channels], &each(&[5.0]));
            let dx = run(&case.node("MaxPoolGrad", DType::F32), &[x.into(), y.into(), dy.into()])
                .remove(0);
            let mut expected = [0.0; 4];
            expected[taken] = 5.0;
            assert_eq!(dx.values::<f32>(), each(&expected));
        }
    }
}

/// llvmpipe leaves loops of more than 65,535 iterations early.
#[test]
fn large_windows() {
    let global = |n: usize| Case { kernel: [1, n, n], stride: [1, n, n], ..plain(n, 1) };
    for (n, dtype) in [(150, DType::F32), (300, DType::F32), (300, DType::F16)] {
        assert!(check(&global(n), dtype, 1));
    }
    // More elements than the numbers of a byte, with and without overlap.
    let sliding = Case { input: [1, 20, 20], stride: [1, 2, 2], ..global(17) };
    let dense = Case { stride: [1; 3], ..sliding.clone() };
    for case in [global(17), sliding, dense] {
        assert!(check(&Case { channels: 4, ..case }, DType::F16, 2));
    }
    // A line that is too long by itself.
    let line =
        Case { input: [1, 1, 70_000], kernel: [1, 1, 69_999], stride: [1; 3], ..plain(1, 1) };
    assert!(check(&line, DType::F32, 3));
}

/// Windows that are split: along each dimension, in all types, with padding and ties, and with
/// tensors that exceed a binding as well.
#[test]
fn windows_of_more_iterations_than_loops_may_have() {
    let base = Case { batch: 2, channels: 3, input: [1, 9, 7], ..plain(1, 1) };
    let dense = Case { kernel: [1, 5, 4], stride: [1; 3], padding: "SAME", ..base.clone() };
    let padded = Case {
        kernel: [1, 4, 6],
        stride: [1, 2, 1],
        padding: "EXPLICIT",
        explicit: [[0; 2], [3, 2], [1, 5]],
        ..base.clone()
    };
    let volume = Case {
        spatial: 3,
        input: [6, 7, 5],
        kernel: [4, 3, 5],
        stride: [2, 1, 1],
        padding: "SAME",
        ..base.clone()
    };
    let four = Case { channels: 4, ..dense.clone() };
    let profile = session().device.profile();
    for (seed, loop_limit) in [12, 60].into_iter().enumerate() {
        numeric::bindings::under(Profile { loop_limit, ..profile }, || {
            for case in [&dense, &padded, &volume, &four] {
                for (last, dtype) in [
                    (true, DType::F32),
                    (false, DType::F16),
                    (true, DType::BF16),
                    (false, DType::F64),
                ] {
                    let dtype =
                        if case.spatial == 3 && dtype == DType::F64 { DType::F32 } else { dtype };
                    assert!(check(&Case { last, ..case.clone() }, dtype, seed as u64), "{case:?}");
                }
            }
        });
    }
    let large = Case { channels: 4, input: [1, 31, 15], ..padded };
    let refused = numeric::bindings::under(Profile { loop_limit: 40, ..profile }, || {
        numeric::bindings::within(8192, || {
            for (last, dtype) in [(true, DType::F32), (false, DType::F16)] {
                assert!(check(&Case { last, ..large.clone() }, dtype, 9));
            }
        })
    });
    assert_eq!(refused, 0);
}

#[test]
fn empty_batches() {
    let case = plain(4, 3);
    let empty = HostTensor::floats(DType::F32, &[0, 4, 4, 3], &[]);
    for op in ["MaxPool", "AvgPool"] {
        assert_eq!(
            run(&case.node(op, DType::F32), &[empty.clone().into()])[0].dims[..],
            [0, 2, 2, 3]
        );
    }
}

#[test]
fn errors_are_tensorflows() {
    let zeros = |dims: &[usize]| {
        Input::from(HostTensor::floats(DType::F32, dims, &vec![0.0; dims.iter().product()]))
    };
    let case = plain(4, 1);
    let fails = |node: &Node, inputs: &[Input], want: &str| match session().run(node, inputs) {
        Err(Error::InvalidArgument(m) | Error::Unimplemented(m)) => {
            assert!(m.contains(want), "{m}\nwant: {want}")
        }
        other => panic!("{want}: {other:?}"),
    };
    let max = case.node("MaxPool", DType::F32);
    let x: &[usize] = &[1, 4, 4, 1];
    fails(&max, &[zeros(&[4, 4, 1])], "tensor_in_shape must have 2 spatial dimensions. 3 0");
    let ksize = |k: [i64; 4]| max.clone().attr("ksize", &k[..]);
    fails(
        &ksize([1, 0, 2, 1]),
        &[zeros(x)],
        "Sliding window ksize must be positive. The specified or inferred ksize is: 1,0,2,1",
    );
    fails(
        &ksize([2, 1, 1, 1]),
        &[zeros(x)],
        "Pooling is not yet supported on the batch dimension.",
    );
    fails(
        &ksize([1, 1, 1, 2]),
        &[zeros(x)],
        "Depthwise max pooling is currently only implemented for CPU devices.",
    );
    fails(&ksize([1, 8, 2, 1]), &[zeros(x)], "Computed output size would be negative");
    fails(
        &max.clone().attr("strides", &[1i64, 0, 1, 1][..]),
        &[zeros(x)],
        "Stride must be > 0, but got 0",
    );
    let padded = max
        .clone()
        .attr("padding", "EXPLICIT")
        .attr("explicit_paddings", &[0i64, 0, 2, 1, 1, 1, 0, 0][..]);
    fails(&padded, &[zeros(x)], "Top padding 2 needs to be smaller than the window size 2");
    let grad = case.node("MaxPoolGrad", DType::F32);
    let y: &[usize] = &[1, 2, 2, 1];
    fails(&grad, &[zeros(&[1, 4, 4]), zeros(y), zeros(y)], "tensor_in must be 4-dimensional");
    fails(
        &grad,
        &[zeros(x), zeros(&[1, 3, 2, 1]), zeros(y)],
        "Expected orig_output shape to be [1,2,2,1], but got [1,3,2,1]",
    );
    fails(
        &grad,
        &[zeros(x), zeros(y), zeros(&[1, 2, 3, 1])],
        "Expected grad shape to be [1,2,2,1], but got [1,2,3,1]",
    );
}
