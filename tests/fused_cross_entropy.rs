//! The cross entropy of a product's logits, in parts of the classes and in one, against plain f64.

#[path = "numeric/close.rs"]
mod close;

use close::tolerance;
use tensorflow_wgpu::HostTensor;
use tensorflow_wgpu::device::{Capabilities, Profile};
use tensorflow_wgpu::dtype::DType::{self, *};
use tensorflow_wgpu::kernels::softmax::linear::has_parts;
use tensorflow_wgpu::local::{Node, Session};

/// Sessions on the adapter as it is, and under a GPU's profile.
fn sessions() -> [Session; 2] {
    let shared = Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers");
    [shared, Session::under(Profile::NVIDIA).unwrap()]
}

/// Numbers in [-1, 1) as the type holds them.
fn numbers(dtype: DType, dims: &[usize], seed: usize) -> HostTensor {
    let n: usize = dims.iter().product();
    let values: Vec<f64> = (0..n)
        .map(|i| ((i * 7919 + seed * 104_729 + i / 13) % 2003) as f64 / 1001.5 - 1.0)
        .collect();
    HostTensor::floats(dtype, dims, &values)
}

/// A case: the operands of one node.
struct Case {
    dtype: DType,
    x: HostTensor,
    /// A row for each class, or a column.
    weights: HostTensor,
    by_rows: bool,
    labels: Vec<i64>,
    scale: Option<HostTensor>,
    codes: Option<Codes>,
    /// The type of the labels.
    index: DType,
}

/// Quantized weights, with a row of codes for each class.
struct Codes {
    decoder: &'static str,
    packing: &'static str,
    extent: usize,
    codes: HostTensor,
    parameters: Vec<HostTensor>,
}

/// How weights are quantized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantization {
    /// Bytes with a scale for each class.
    Int8,
    /// The same with a divisor.
    Divided,
    /// Two codes in a byte, with a zero point and a scale for each group of four in a row.
    Int4,
}

impl Case {
    /// A case of random numbers. The label of the last row of several is no class.
    fn new(dtype: DType, [rows, classes, depth]: [usize; 3], by_rows: bool) -> Self {
        let weights = if by_rows { [classes, depth] } else { [depth, classes] };
        let label = |r: usize| match r {
            0 => classes as i64 - 1,
            r if r + 1 == rows => classes as i64,
            r => (r * 7919 % classes) as i64,
        };
        Self {
            dtype,
            x: numbers(dtype, &[rows, depth], 1),
            weights: numbers(dtype, &weights, 2),
            by_rows,
            labels: (0..rows).map(label).collect(),
            scale: None,
            codes: None,
            index: I64,
        }
    }

    /// The same with quantized weights.
    fn quantized(dtype: DType, extents: [usize; 3], how: Quantization) -> Self {
        let [_, classes, depth] = extents;
        let mut case = Self::new(dtype, extents, true);
        let code = |c: usize, k: usize| match how {
            Quantization::Int8 | Quantization::Divided => ((c * 7919 + k * 31) % 255) as i32 - 127,
            Quantization::Int4 => ((c * 7919 + k * 31) % 16) as i32 - 8,
        };
        let groups = depth.div_ceil(4);
        let group = |c: usize, k: usize| c * groups + k / 4;
        let points: Vec<i32> = (0..classes * groups).map(|i| i as i32 % 3 - 1).collect();
        let step = |i: usize| (1 + i % 3) as f64 / 64.0;
        let scale = |c: usize| match how {
            Quantization::Divided => f64::from(1 << (c % 3 + 7)),
            _ => (1 + c % 5) as f64 / 1024.0,
        };
        let values = (0..classes * depth).map(|i| {
            let (c, k) = (i / depth, i % depth);
            match how {
                Quantization::Int8 => f64::from(code(c, k)) * scale(c),
                Quantization::Divided => f64::from(code(c, k)) / scale(c),
                Quantization::Int4 => {
                    f64::from(code(c, k) - points[group(c, k)]) * step(group(c, k))
                }
            }
        });
        case.weights = HostTensor::floats(F32, &[classes, depth], &values.collect::<Vec<_>>());
        case.codes = Some(match how {
            Quantization::Int8 | Quantization::Divided => {
                let codes: Vec<i8> =
                    (0..classes * depth).map(|i| code(i / depth, i % depth) as i8).collect();
                let scales: Vec<f64> = (0..classes).map(scale).collect();
                Codes {
                    decoder: if how == Quantization::Int8 { "* r" } else { "/ r" },
                    packing: "bytes",
                    extent: 0,
                    codes: HostTensor::of(I8, &[classes, depth], &codes),
                    parameters: vec![HostTensor::floats(dtype, &[classes], &scales)],
                }
            }
            Quantization::Int4 => {
                let bytes = depth.div_ceil(2);
                let byte = |i: usize| {
                    let (c, k) = (i / bytes, i % bytes * 2);
                    let high = if k + 1 < depth { code(c, k + 1) } else { 0 };
                    ((code(c, k) & 15) | (high & 15) << 4) as u8 as i8
                };
                let codes: Vec<i8> = (0..classes * bytes).map(byte).collect();
                let points: Vec<i8> = points.iter().map(|p| *p as i8).collect();
                let steps: Vec<f64> = (0..classes * groups).map(step).collect();
                let of_column: Vec<f32> = (0..depth).map(|k| (k / 4) as f32).collect();
                Codes {
                    decoder: "- rg, * rg",
                    packing: "columns",
                    extent: depth,
                    codes: HostTensor::of(I8, &[classes, bytes], &codes),
                    parameters: vec![
                        HostTensor::of(I8, &[classes, groups], &points),
                        HostTensor::floats(dtype, &[classes, groups], &steps),
                        HostTensor::f32(&[depth], &of_column),
                    ],
                }
            }
        });
        case
    }

    fn run(&self, session: &mut Session, argument: Option<DType>) -> Vec<HostTensor> {
        let narrow: Vec<i32> = self.labels.iter().map(|label| *label as i32).collect();
        let labels = match self.index {
            I32 => HostTensor::i32(&[narrow.len()], &narrow),
            _ => HostTensor::i64(&[self.labels.len()], &self.labels),
        };
        let scale: &[DType] = if self.scale.is_some() { &[F32] } else { &[] };
        let values = match argument {
            Some(_) => format!("x: {}; c: 1; s0 = Mul<{0}>(x0, c0); return s0", self.dtype),
            None => String::new(),
        };
        let codes = self.codes.as_ref();
        let parameters: Vec<DType> =
            codes.iter().flat_map(|codes| codes.parameters.iter().map(|p| p.dtype)).collect();
        let node = Node::new("_WgpuFusedLinearCrossEntropy")
            .attr("T", self.dtype)
            .attr("T_weights", self.codes.as_ref().map_or(self.dtype, |codes| codes.codes.dtype))
            .attr("T_parameters", parameters.as_slice())
            .attr("decoder", self.codes.as_ref().map_or("", |codes| codes.decoder))
            .attr("packing", self.codes.as_ref().map_or("bytes", |codes| codes.packing))
            .attr("extent", self.codes.as_ref().map_or(0, |codes| codes.extent as i64))
            .attr("Tlabels", self.index)
            .attr("Tscale", scale)
            .attr("T_argument", argument.as_slice())
            .attr("dims", &[1_i64, -1][..])
            .attr("adj_y", self.by_rows)
            .attr("expression", values.as_str())
            .attr("constants", &[2.0_f32][..argument.iter().len()]);
        let weights = codes.map_or(&self.weights, |codes| &codes.codes).clone();
        let more = codes.map_or(&[][..], |codes| &codes.parameters).iter().cloned();
        let inputs = [self.x.clone(), weights, labels].into_iter().chain(more);
        let inputs: Vec<_> = inputs.chain(self.scale.clone()).map(Into::into).collect();
        session.run(&node, &inputs).unwrap()
    }

    /// Compares all outputs with plain f64.
    fn check(&self, session: &mut Session) {
        let out = self.run(session, Some(I32));
        let (depth, rows) = (self.x.dims[1], self.x.dims[0]);
        let classes = self.weights.dims[usize::from(!self.by_rows)];
        let what = format!("{} {rows} x {classes} x {depth}, {}", self.dtype, self.by_rows);
        assert_eq!((&out[0].dims[..], &out[1].dims), (&[rows][..], &self.x.dims), "{what}");
        let (x, weights) = (self.x.to_f64(), self.weights.to_f64());
        let weight = |class: usize, k: usize| match self.by_rows {
            true => weights[class * depth + k],
            false => weights[k * classes + class],
        };
        let scale = self.scale.as_ref().map(|scale| scale.to_f64());
        let (losses, gradients) = (out[0].to_f64(), out[1].to_f64());
        let unit = tolerance(self.dtype);
        // Of many rows, the first and the last ones, and every 31st of the others.
        let is_checked = |r: &usize| *r < 4 || r + 4 > rows || r % 31 == 0;
        for (r, x) in x.chunks(depth).enumerate().filter(|(r, _)| is_checked(r)) {
            let logits: Vec<f64> =
                (0..classes).map(|c| (0..depth).map(|k| x[k] * weight(c, k)).sum()).collect();
            let logits = HostTensor::floats(self.dtype, &[classes], &logits).to_f64();
            let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let at = out[2].values::<i32>()[r] as usize;
            // Products round sums in another order.
            assert!(largest - logits[at] <= 2.0 * unit * largest.abs(), "{what}: row {r}, {at}");
            let shares: Vec<f64> = logits.iter().map(|l| (l - largest).exp()).collect();
            let sum: f64 = shares.iter().sum();
            let Some(label) = usize::try_from(self.labels[r]).ok().filter(|l| *l < classes) else {
                assert!(losses[r].is_nan(), "{what}: row {r}");
                assert!(gradients[r * depth..][..depth].iter().all(|g| g.is_nan()), "{what}");
                continue;
            };
            let loss = sum.ln() + largest - logits[label];
            let off = (losses[r] - loss).abs();
            assert!(off <= 4.0 * unit * (loss.abs() + 1.0), "{what}: loss {loss}, {}", losses[r]);
            let factor = scale.as_ref().map_or(1.0, |s| s[r % s.len()]);
            let rest = 1.0 - shares[label] / sum;
            for k in 0..depth {
                let term = |c: usize| match c == label {
                    true => -rest * weight(c, k),
                    false => shares[c] / sum * weight(c, k),
                };
                let wanted: f64 = factor * (0..classes).map(term).sum::<f64>();
                let size = factor.abs() * (0..classes).map(|c| term(c).abs()).sum::<f64>();
                let got = gradients[r * depth + k];
                let off = (got - wanted).abs();
                let least = if self.dtype == F16 { 1e-7 } else { 1e-30 };
                assert!(off <= 2.0 * unit * size + least, "{what}: row {r}, {got}, not {wanted}");
            }
        }
    }
}

#[test]
fn losses_and_gradients_of_a_product() {
    for mut session in sessions() {
        for dtype in session.supported([F32, F16, BF16]) {
            for (k, extents) in
                [[1, 1, 1], [2, 3, 1], [5, 10, 6], [3, 1000, 33], [9, 257, 8], [0, 5, 3]]
                    .into_iter()
                    .enumerate()
            {
                for by_rows in [true, false] {
                    session.misalign = k % 2;
                    let mut case = Case::new(dtype, extents, by_rows);
                    let rows = extents[0];
                    let of_rows: Vec<f64> = (0..rows).map(|r| 0.3 - 0.1 * r as f64).collect();
                    case.scale = match k % 3 {
                        0 => None,
                        1 => Some(HostTensor::floats(F32, &[rows, 1], &of_rows)),
                        _ => Some(HostTensor::f32(&[], &[0.3])),
                    };
                    case.check(&mut session);
                }
            }
        }
    }
}

/// The rows are few, so that the classes take several parts, the last one of an odd width.
#[test]
fn classes_in_several_parts() {
    for mut session in sessions() {
        for (dtype, extents) in
            [(F32, [70, 40_001, 3]), (BF16, [130, 50_002, 2]), (F16, [600, 9_999, 2])]
        {
            assert!(has_parts(extents[0], extents[1], dtype), "{extents:?}");
            for by_rows in [true, false] {
                Case::new(dtype, extents, by_rows).check(&mut session);
            }
        }
    }
}

#[test]
fn quantized_weights() {
    for mut session in sessions() {
        for (k, dtype) in [F32, F16, BF16].into_iter().enumerate() {
            for how in [Quantization::Int8, Quantization::Divided, Quantization::Int4] {
                for extents in [[0, 3, 4], [1, 1, 4], [5, 10, 6], [70, 300, 33], [129, 257, 8]] {
                    session.misalign = k % 2;
                    Case::quantized(dtype, extents, how).check(&mut session);
                }
                let many = [700, 9_000, 2];
                assert!(has_parts(many[0], many[1], dtype));
                Case::quantized(dtype, many, how).check(&mut session);
            }
        }
    }
}

/// A product with codes, a zero point, a scale and groups binds as many tensors as some adapters
/// can. Then the sum before the second part is added by a dispatch of its own.
#[test]
fn few_bindings() {
    let case = Case::quantized(BF16, [700, 9_000, 6], Quantization::Int4);
    assert!(has_parts(700, 9_000, BF16));
    let dispatches = |max_bindings| {
        let capabilities = Capabilities { max_bindings, ..Profile::NVIDIA.capabilities };
        let mut session = Session::under(Profile { capabilities, ..Profile::NVIDIA }).unwrap();
        case.check(&mut session);
        let before = session.device.statistics().dispatches;
        case.run(&mut session, None);
        session.device.statistics().dispatches - before
    };
    let few = dispatches(8);
    if sessions()[0].device.capabilities().max_bindings >= 10 {
        assert_eq!(few, dispatches(10) + 1);
    }
}

/// A part of the weights and their result exceed the largest binding.
#[test]
fn weights_beyond_one_binding() {
    let mut session = Session::binding(1 << 20).unwrap();
    for by_rows in [true, false] {
        Case::new(F32, [40, 70_000, 8], by_rows).check(&mut session);
        Case::new(BF16, [39, 70_001, 8], by_rows).check(&mut session);
    }
}

#[test]
fn nothing_has_parts_without_classes() {
    assert!(!has_parts(5, 0, F32) && !has_parts(usize::MAX, 1, F32));
}

/// The first of equal logits counts, also if they are in two parts.
#[test]
fn the_first_of_equal_logits_is_the_argument() {
    let mut case = Case::new(F32, [70, 40_001, 1], true);
    assert!(has_parts(70, 40_001, F32));
    case.x = HostTensor::f32(&[70, 1], &[1.0; 70]);
    let mut weights = vec![0.0_f32; 40_001];
    (weights[123], weights[40_000]) = (3.0, 3.0);
    case.weights = HostTensor::f32(&[40_001, 1], &weights);
    for mut session in sessions() {
        let out = case.run(&mut session, Some(I64));
        assert_eq!(out[2].values::<i64>(), [123; 70]);
        case.index = I32;
        assert_eq!(case.run(&mut session, Some(I64))[0].to_f64()[1..60], out[0].to_f64()[1..60]);
    }
}

/// Where the model is sure of the label, the gradient consists of small shares. Their sum is as
/// exact as they are.
#[test]
fn gradients_of_sure_rows_keep_their_precision() {
    for mut session in sessions() {
        for dtype in session.supported([F32, F16, BF16]) {
            let mut case = Case::new(dtype, [4, 3000, 4], true);
            case.labels = vec![7, 2999, 0, 1500];
            let mut weights = case.weights.to_f64();
            let mut x = case.x.to_f64();
            for (r, label) in case.labels.iter().enumerate() {
                x[r * 4..][..4].fill(0.0);
                x[r * 4 + r] = 4.0;
                // Logits are 24 for the label, and up to 4 for others: shares of 1e-9.
                weights[*label as usize * 4 + r] = 6.0;
            }
            for (class, weight) in weights.chunks_mut(4).enumerate() {
                if let Some(r) = case.labels.iter().position(|l| *l as usize == class) {
                    weight
                        .iter_mut()
                        .enumerate()
                        .filter(|(k, _)| *k != r)
                        .for_each(|(_, w)| *w = 0.0);
                }
            }
            case.x = HostTensor::floats(dtype, &[4, 4], &x);
            case.weights = HostTensor::floats(dtype, &[3000, 4], &weights);
            // As loss scaling does, so that float16 holds the gradient.
            case.scale = Some(HostTensor::f32(&[], &[65536.0]));
            case.check(&mut session);
        }
    }
}
