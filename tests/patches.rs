//! Patches, dilation and local response normalization against direct f64 references.

mod numeric;

use numeric::bindings::{session, under};
use numeric::{Random, assert_close};
use tensorflow_wgpu::device::Profile;
use tensorflow_wgpu::local::{Input, Node};
use tensorflow_wgpu::{DType, Error, HostTensor};

fn run(node: &Node, inputs: &[Input]) -> HostTensor {
    session().run(node, inputs).unwrap_or_else(|e| panic!("{node:?}: {e}")).remove(0)
}

/// Windows over two spatial dimensions.
#[derive(Debug, Clone, Copy)]
struct Windows {
    batch: usize,
    depth: usize,
    input: [usize; 2],
    output: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    rate: [usize; 2],
    pad: [usize; 2],
    same: bool,
}

impl Windows {
    fn random(random: &mut Random) -> Option<Self> {
        let mut pair = |low, high| [random.between(low, high), random.between(low, high)];
        let (input, kernel, stride, rate) = (pair(1, 8), pair(1, 3), pair(1, 3), pair(1, 2));
        let (batch, depth, same) =
            (random.between(1, 2), random.between(1, 5), random.below(2) == 0);
        let (mut output, mut pad) = ([0; 2], [0; 2]);
        for d in 0..2 {
            let effective = (kernel[d] - 1) * rate[d] + 1;
            (output[d], pad[d]) = if same {
                let output = input[d].div_ceil(stride[d]);
                (output, ((output - 1) * stride[d] + effective).saturating_sub(input[d]) / 2)
            } else {
                (input[d].checked_sub(effective)? / stride[d] + 1, 0)
            };
        }
        Some(Self { batch, depth, input, output, kernel, stride, rate, pad, same })
    }

    fn node(&self, op: &str, dtype: DType) -> Node {
        let list = |[a, b]: [usize; 2]| [1, a as i64, b as i64, 1];
        Node::new(op)
            .attr("T", dtype)
            .attr("ksizes", &list(self.kernel)[..])
            .attr("strides", &list(self.stride)[..])
            .attr("rates", &list(self.rate)[..])
            .attr("padding", if self.same { "SAME" } else { "VALID" })
    }

    /// Calls `f` for each window and filter position with the output pixel, the position and the
    /// input pixel, if it exists.
    fn each(&self, mut f: impl FnMut(usize, usize, Option<usize>)) {
        let [rows, columns] = self.output;
        for pixel in 0..self.batch * rows * columns {
            let at = [pixel / columns % rows, pixel % columns];
            for position in 0..self.kernel[0] * self.kernel[1] {
                let k = [position / self.kernel[1], position % self.kernel[1]];
                let x = [0, 1].map(|d| {
                    (at[d] * self.stride[d] + k[d] * self.rate[d]).wrapping_sub(self.pad[d])
                });
                let inside = x[0] < self.input[0] && x[1] < self.input[1];
                let image = pixel / (rows * columns) * self.input[0];
                f(pixel, position, inside.then(|| (image + x[0]) * self.input[1] + x[1]));
            }
        }
    }

    fn input_dims(&self) -> [usize; 4] {
        [self.batch, self.input[0], self.input[1], self.depth]
    }

    fn output_dims(&self) -> [usize; 4] {
        [self.batch, self.output[0], self.output[1], self.depth]
    }
}

const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::F64];

#[test]
fn patches_of_every_size_of_element() {
    patches(60);
}

/// Images in windows, and slabs of their rows.
#[test]
fn patches_beyond_one_binding() {
    assert_eq!(numeric::bindings::within(8192, || patches(60)), 0);
}

fn patches(count: usize) {
    let mut random = Random::new(5);
    for i in 0..count {
        let Some(w) = Windows::random(&mut random) else { continue };
        let dtype = [DType::Bool, DType::F16, DType::F32, DType::C64, DType::C128][i % 5];
        if !session().runs(dtype) {
            continue;
        }
        let bytes: Vec<u8> = (0..w.input_dims().iter().product::<usize>() * dtype.size())
            .map(|_| random.below(2) as u8)
            .collect();
        let pixel = w.depth * dtype.size();
        let positions = w.kernel[0] * w.kernel[1];
        let mut want = vec![0; w.batch * w.output[0] * w.output[1] * positions * pixel];
        w.each(|o, k, x| {
            if let Some(x) = x {
                want[(o * positions + k) * pixel..][..pixel]
                    .copy_from_slice(&bytes[x * pixel..][..pixel]);
            }
        });
        let x = HostTensor { dtype, dims: w.input_dims()[..].into(), bytes };
        let mut session = session();
        session.misalign = i % 2;
        let got =
            session.run(&w.node("ExtractImagePatches", dtype), &[x.into()]).unwrap().remove(0);
        assert_eq!(got.dims[..], [w.batch, w.output[0], w.output[1], positions * w.depth]);
        assert!(got.bytes == want, "{dtype} {w:?}");
    }
}

#[test]
fn dilation_and_its_gradients() {
    dilation();
}

#[test]
fn windows_where_loops_are_short() {
    let profile = session().device.profile();
    under(Profile { loop_limit: 14, ..profile }, dilation);
    under(Profile { loop_limit: 3, ..profile }, normalization);
}

/// A filter of more taps than llvmpipe's iterations, those behind them in the image.
#[test]
fn windows_of_more_than_llvmpipes_iterations() {
    let (n, before) = (140_001, 70_000);
    let ones = &[1i64, 1, 1, 1][..];
    let node = |op: &str| {
        let node = Node::new(op).attr("T", DType::F32).attr("padding", "SAME");
        node.attr("strides", ones).attr("rates", ones)
    };
    let line = |values: &[f32; 4]| Input::from(HostTensor::f32(&[1, 1, 4, 1], values));
    let filter = HostTensor::f32(&[1, n, 1], &vec![0.5; n]);
    let mut inputs = vec![line(&[1.0, 9.0, 2.0, 3.0]), filter.into()];
    assert_eq!(run(&node("Dilation2D"), &inputs).to_f64(), [9.5; 4]);
    inputs.push(line(&[1.0, 2.0, 3.0, 4.0]));
    let dx = run(&node("Dilation2DBackpropInput"), &inputs).to_f64();
    assert_eq!(dx, [0.0, 10.0, 0.0, 0.0]);
    let mut want = vec![0.0; n];
    for (o, dy) in [1.0, 2.0, 3.0, 4.0].into_iter().enumerate() {
        want[before + 1 - o] = dy;
    }
    let dw = run(&node("Dilation2DBackpropFilter"), &inputs).to_f64();
    assert!(dw == want);
}

fn dilation() {
    let mut random = Random::new(9);
    for i in 0..60 {
        let Some(w) = Windows::random(&mut random) else { continue };
        let dtype = FLOATS[i % 4];
        if !session().runs(dtype) {
            continue;
        }
        // Small integers: ties are common, and sums exact.
        let mut small = |dims: &[usize]| {
            let values: Vec<f64> =
                (0..dims.iter().product()).map(|_| random.below(5) as f64 - 2.0).collect();
            (HostTensor::floats(dtype, dims, &values), values)
        };
        let (x, xv) = small(&w.input_dims());
        let (filter, fv) = small(&[w.kernel[0], w.kernel[1], w.depth]);
        let (dy, dv) = small(&w.output_dims());
        let mut best: Vec<Option<(f64, usize, usize)>> = vec![None; dv.len()];
        w.each(|o, k, x| {
            let Some(x) = x else { return };
            for c in 0..w.depth {
                let sum = xv[x * w.depth + c] + fv[k * w.depth + c];
                let slot = &mut best[o * w.depth + c];
                if slot.is_none_or(|(largest, ..)| sum > largest) {
                    *slot = Some((sum, x, k));
                }
            }
        });
        if best.iter().any(Option::is_none) {
            continue;
        }
        let (mut dx, mut dw) = (vec![0.0; xv.len()], vec![0.0; fv.len()]);
        for (o, taken) in best.iter().flatten().enumerate() {
            let c = o % w.depth;
            dx[taken.1 * w.depth + c] += dv[o];
            dw[taken.2 * w.depth + c] += dv[o];
        }
        let what = format!("{dtype} {w:?}");
        let largest: Vec<f64> = best.iter().flatten().map(|b| b.0).collect();
        let mut inputs: Vec<Input> = vec![x.into(), filter.into()];
        assert_close(&run(&w.node("Dilation2D", dtype), &inputs), &largest, 0.0, &what);
        inputs.push(dy.into());
        assert_close(&run(&w.node("Dilation2DBackpropInput", dtype), &inputs), &dx, 0.0, &what);
        assert_close(&run(&w.node("Dilation2DBackpropFilter", dtype), &inputs), &dw, 0.0, &what);
    }
}

#[test]
fn local_response_normalization() {
    normalization();
}

fn normalization() {
    let (bias, alpha) = (1.5f32, 0.4f32);
    let mut random = Random::new(2);
    let cases = [
        (1, 3, 0.6f32),
        (7, 0, 0.5),
        (8, 1, 0.75),
        (9, 2, 0.6),
        (20, 5, 0.75),
        (27, 9, 0.5),
        (6, 1000, 1.0),
    ];
    for (depth, radius, beta) in cases {
        let dims = [2, 3, 2, depth];
        let (x, xv) = random.tensor(DType::F32, &dims);
        let (dy, dv) = random.tensor(DType::F32, &dims);
        let node = |op: &str| {
            let node = Node::new(op).attr("T", DType::F32).attr("depth_radius", radius as i64);
            node.attr("bias", bias).attr("alpha", alpha).attr("beta", beta)
        };
        let (bias, alpha, beta) = (f64::from(bias), f64::from(alpha), f64::from(beta));
        let window = |i: usize| {
            let (c, start) = (i % depth, i - i % depth);
            start + c.saturating_sub(radius)..start + (c + radius + 1).min(depth)
        };
        let scale: Vec<f64> = (0..xv.len())
            .map(|i| bias + alpha * window(i).map(|j| xv[j] * xv[j]).sum::<f64>())
            .collect();
        let y: Vec<f64> = (0..xv.len()).map(|i| xv[i] * scale[i].powf(-beta)).collect();
        let dx: Vec<f64> = (0..xv.len())
            .map(|i| {
                let taken: f64 = window(i).map(|j| dv[j] * y[j] / scale[j]).sum();
                dv[i] * scale[i].powf(-beta) - 2.0 * alpha * beta * xv[i] * taken
            })
            .collect();
        let got = run(&node("LRN"), &[x.clone().into()]);
        assert_close(&got, &y, 1.0, "LRN");
        assert_close(
            &run(&node("LRNGrad"), &[dy.into(), x.into(), got.into()]),
            &dx,
            3.0,
            "LRNGrad",
        );
    }
}

#[test]
fn volumes() {
    let x: Vec<f32> = (0..24).map(|i| i as f32).collect();
    let node = Node::new("ExtractVolumePatches").attr("T", DType::F32).attr("padding", "VALID");
    let node =
        node.attr("ksizes", &[1i64, 2, 1, 2, 1][..]).attr("strides", &[1i64, 1, 2, 1, 1][..]);
    let y = run(&node, &[HostTensor::f32(&[1, 2, 3, 4, 1], &x).into()]);
    assert_eq!(y.dims[..], [1, 1, 2, 3, 4]);
    assert_eq!(y.values::<f32>()[..8], [0.0, 1.0, 12.0, 13.0, 1.0, 2.0, 13.0, 14.0]);
}

#[test]
fn errors_are_tensorflows() {
    let zeros =
        |dims: &[usize]| Input::from(HostTensor::f32(dims, &vec![0.0; dims.iter().product()]));
    let fails = |node: &Node, inputs: &[Input]| match session().run(node, inputs) {
        Err(e) => e,
        got => panic!("{got:?}"),
    };
    let ones = &[1i64, 1, 1, 1][..];
    let patches = Node::new("ExtractImagePatches")
        .attr("T", DType::F32)
        .attr("strides", ones)
        .attr("rates", ones);
    let sized = |k: [i64; 4]| patches.clone().attr("ksizes", &k[..]).attr("padding", "VALID");
    let x = [zeros(&[1, 2, 2, 1])];
    assert_eq!(
        fails(&sized([2, 1, 1, 1]), &x),
        Error::Unimplemented("Only support ksizes across space.".to_owned())
    );
    assert_eq!(
        fails(&sized([1, 0, 1, 1]), &x),
        Error::OutOfRange("ksizes is out of range.".to_owned())
    );
    let message = fails(&sized([1, 4, 1, 1]), &x).to_string();
    assert!(
        message.contains("Computed output size would be negative: -1 [input_size: 2"),
        "{message}"
    );
    let dilation = |op: &str, inputs: &[Input]| {
        let node = Node::new(op)
            .attr("T", DType::F32)
            .attr("strides", ones)
            .attr("rates", ones)
            .attr("padding", "VALID");
        fails(&node, inputs)
    };
    let error = dilation("Dilation2D", &[zeros(&[1, 2, 2, 1]), zeros(&[1, 1, 2])]);
    assert_eq!(
        error,
        Error::InvalidArgument(
            "Dilation2D: input and filter must have the same depth: 1 vs 2".to_owned()
        )
    );
    let error = dilation(
        "Dilation2DBackpropInput",
        &[zeros(&[1, 2, 2, 1]), zeros(&[1, 1, 1]), zeros(&[1, 2, 3, 1])],
    );
    assert_eq!(
        error,
        Error::InvalidArgument(
            "Dilation2DBackpropInput: out_backprop has incompatible size.".to_owned()
        )
    );
}
