//! CTCLoss and CTCLossV2 against sums over all paths, and against difference quotients of a plain
//! forward pass in f64.

use super::numeric::bindings::{self, session_of};
use super::numeric::{Random, session};
use tensorflow_wgpu::device::Profile;
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor};

/// Extents, labels and attributes.
#[derive(Clone)]
struct Case {
    op: &'static str,
    dtype: DType,
    time: usize,
    classes: usize,
    labels: Vec<Vec<i32>>,
    lengths: Vec<i32>,
    collapses: bool,
    merges: bool,
    ignores: bool,
}

impl Case {
    fn new(op: &'static str, time: usize, classes: usize, labels: &[&[i32]]) -> Self {
        Self {
            op,
            dtype: DType::F32,
            time,
            classes,
            labels: labels.iter().map(|l| l.to_vec()).collect(),
            lengths: vec![time as i32; labels.len()],
            collapses: false,
            merges: true,
            ignores: false,
        }
    }

    fn batch(&self) -> usize {
        self.labels.len()
    }

    fn blank(&self) -> i32 {
        if self.op == "CTCLoss" { self.classes as i32 - 1 } else { 0 }
    }

    fn node(&self) -> Node {
        let node = Node::new(self.op)
            .attr("preprocess_collapse_repeated", self.collapses)
            .attr("ctc_merge_repeated", self.merges)
            .attr("ignore_longer_outputs_than_inputs", self.ignores);
        if self.op == "CTCLoss" { node.attr("T", self.dtype) } else { node }
    }

    fn inputs(&self, logits: &HostTensor) -> Vec<Input> {
        let mut indices = Vec::new();
        for (b, labels) in self.labels.iter().enumerate() {
            indices.extend((0..labels.len()).flat_map(|i| [b as i64, i as i64]));
        }
        let values = self.labels.concat();
        vec![
            logits.clone().into(),
            HostTensor::i64(&[values.len(), 2], &indices).into(),
            HostTensor::i32(&[values.len()], &values).into(),
            HostTensor::i32(&[self.lengths.len()], &self.lengths).into(),
        ]
    }

    /// The labels of a sequence that are counted.
    fn counted(&self, b: usize) -> Vec<i32> {
        let mut labels = self.labels[b].clone();
        if self.collapses {
            labels.dedup();
        }
        labels.retain(|l| *l != self.blank());
        labels
    }

    /// The loss of a sequence whose classes have these probabilities at each step.
    fn loss(&self, b: usize, y: &[Vec<f64>]) -> f64 {
        let blank = self.blank();
        let steps = self.lengths[b] as usize;
        if steps == 0 || self.ignores && self.labels[b].len() > steps {
            return 0.0;
        }
        let mut path = vec![blank];
        for label in self.counted(b) {
            path.extend([label, blank]);
        }
        let mut now = vec![0.0; path.len()];
        for (u, n) in now.iter_mut().enumerate().take(2) {
            *n = y[0][path[u] as usize];
        }
        for row in &y[1..steps] {
            let before = now.clone();
            for u in 0..path.len() {
                let mut sum = 0.0;
                if self.merges || path[u] == blank {
                    sum += before[u];
                }
                if u > 0 {
                    sum += before[u - 1];
                }
                if u > 1 && path[u] != blank && !(self.merges && path[u] == path[u - 2]) {
                    sum += before[u - 2];
                }
                now[u] = sum * row[path[u] as usize];
            }
        }
        -now.iter().rev().take(2).sum::<f64>().ln()
    }

    /// Loss and gradient.
    fn reference(&self, logits: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (batch, classes) = (self.batch(), self.classes);
        let row = |x: &[f64], t: usize, b: usize| -> Vec<f64> {
            let x = &x[(t * batch + b) * classes..][..classes];
            let sum: f64 = x.iter().map(|v| v.exp()).sum();
            x.iter().map(|v| v.exp() / sum).collect()
        };
        let loss = |x: &[f64], b: usize| {
            self.loss(b, &(0..self.time).map(|t| row(x, t, b)).collect::<Vec<_>>())
        };
        let mut gradient = vec![0.0; logits.len()];
        for (i, g) in gradient.iter_mut().enumerate() {
            let (t, b) = (i / classes / batch, i / classes % batch);
            if t >= self.lengths[b] as usize {
                continue;
            }
            let by = |h: f64| {
                let mut x = logits.to_vec();
                x[i] += h;
                loss(&x, b)
            };
            *g = match by(0.0) {
                f if f.is_finite() => (by(1e-5) - by(-1e-5)) / 2e-5,
                _ => row(logits, t, b)[i % classes],
            };
        }
        ((0..batch).map(|b| loss(logits, b)).collect(), gradient)
    }

    fn logits(&self, seed: u64) -> (HostTensor, Vec<f64>) {
        let dims = [self.time, self.batch(), self.classes];
        Random::new(seed).tensor(self.dtype, &dims)
    }

    fn check(&self, session: &mut Session, what: &str) {
        let (logits, x) = self.logits(7);
        let got = session.run(&self.node(), &self.inputs(&logits));
        let got = got.unwrap_or_else(|e| panic!("{what}: {e}"));
        let (loss, gradient) = self.reference(&x);
        let tolerance = if self.dtype == DType::F64 { 1e-9 } else { 2e-5 };
        for (name, got, want) in [("loss", &got[0], &loss), ("gradient", &got[1], &gradient)] {
            for (i, (g, w)) in got.to_f64().iter().zip(want).enumerate() {
                assert!(
                    g == w || (g - w).abs() <= tolerance * w.abs().max(1.0),
                    "{what}: {name} {i} is {g}, want {w}"
                );
            }
        }
        assert_eq!(got[0].dims[..], [self.batch()]);
        assert_eq!(got[1].dims, logits.dims);
    }
}

fn cases() -> Vec<(&'static str, Case)> {
    let small = Case::new("CTCLoss", 6, 4, &[&[0, 1], &[2, 2, 1], &[1]]);
    let v2 = Case::new("CTCLossV2", 6, 4, &[&[1, 2], &[3, 3, 1], &[2]]);
    vec![
        ("small", small.clone()),
        ("float64", Case { dtype: DType::F64, ..small.clone() }),
        ("version 2", v2.clone()),
        ("lengths", Case { lengths: vec![4, 6, 1], ..small.clone() }),
        ("no merges", Case { merges: false, ..small.clone() }),
        ("collapses", Case { collapses: true, ..small.clone() }),
        ("ignores", Case { ignores: true, lengths: vec![1, 5, 0], ..small.clone() }),
        ("no path", Case { lengths: vec![4, 3, 2], ..small }),
        ("no labels", Case::new("CTCLossV2", 3, 3, &[&[], &[1]])),
        ("blanks behind", Case::new("CTCLoss", 5, 3, &[&[0, 1, 2, 2]])),
        ("one step", Case::new("CTCLoss", 1, 2, &[&[0]])),
        ("many repeats", Case::new("CTCLoss", 9, 3, &[&[0, 1, 0, 1, 0, 1, 0]])),
    ]
}

#[test]
fn losses_and_gradients_are_those_of_the_forward_pass() {
    for misalign in [0, 1] {
        let mut session = session();
        session.misalign = misalign;
        for (what, case) in cases() {
            if session.runs(case.dtype) {
                case.check(&mut session, what);
            }
        }
    }
    for profile in Profile::DISTINCT {
        bindings::under(profile, || {
            let mut session = session();
            for (what, case) in cases() {
                if session.runs(case.dtype) {
                    case.check(&mut session, &format!("{}: {what}", profile.name));
                }
            }
        });
    }
}

/// A sequence with more labels than steps is left out, however many labels it has.
#[test]
fn long_sequences_that_are_left_out() {
    let labels: Vec<i32> = (0..40_000).map(|i| i % 3).collect();
    let case = Case::new("CTCLoss", 3, 4, &[&labels, &[1, 2]]);
    Case { ignores: true, ..case }.check(&mut session(), "left out");
}

/// More classes than llvmpipe's iterations of one workgroup.
#[test]
fn millions_of_classes() {
    let classes = 4_200_001;
    let case = Case::new("CTCLoss", 1, classes, &[&[7]]);
    let x: Vec<f32> = (0..classes).map(|i| ((i * 7919) % 1601) as f32 / 400.0).collect();
    let logits = HostTensor::f32(&[1, 1, classes], &x);
    let got = session().run(&case.node(), &case.inputs(&logits)).expect("a loss");
    let sum: f64 = x.iter().map(|v| f64::from(*v).exp()).sum();
    let of = |i: usize| f64::from(x[i]).exp() / sum;
    let loss = got[0].to_f64()[0];
    assert!((loss + of(7).ln()).abs() < 1e-4, "{loss}, want {}", -of(7).ln());
    for (i, got) in got[1].to_f64().into_iter().enumerate() {
        let want = of(i) - f64::from(u8::from(i == 7));
        assert!((got - want).abs() < 1e-4 * want.abs(), "class {i}: {got}, want {want}");
    }
}

#[test]
fn the_loss_is_a_sum_over_all_paths() {
    let case = Case::new("CTCLossV2", 4, 3, &[&[1, 1], &[2, 1]]);
    let (logits, x) = case.logits(3);
    let loss = session().run(&case.node(), &case.inputs(&logits)).expect("a loss")[0].to_f64();
    for (b, got) in loss.iter().enumerate() {
        let mut sum = 0.0;
        for path in 0..3_usize.pow(4) {
            let classes: Vec<usize> = (0..4).map(|t| path / 3_usize.pow(t) % 3).collect();
            let mut read = classes.clone();
            read.dedup();
            read.retain(|c| *c != 0);
            if !read.iter().map(|c| *c as i32).eq(case.labels[b].iter().copied()) {
                continue;
            }
            let step = |(t, c): (usize, &usize)| {
                let row = &x[(t * 2 + b) * 3..][..3];
                row[*c].exp() / row.iter().map(|v| v.exp()).sum::<f64>()
            };
            sum += classes.iter().enumerate().map(step).product::<f64>();
        }
        assert!((got + sum.ln()).abs() < 1e-5, "sequence {b}: {got}, want {}", -sum.ln());
    }
}

/// More positions than invocations, more classes than invocations, and windows of steps and
/// sequences where a binding is small.
#[test]
fn long_sequences_and_small_bindings_give_the_same() {
    let labels: Vec<Vec<i32>> =
        (0..5).map(|b| (0..40 + b).map(|i| (i * 7 + b) % 70).collect()).collect();
    let labels: Vec<&[i32]> = labels.iter().map(Vec::as_slice).collect();
    let case =
        Case { lengths: vec![100, 90, 99, 60, 100], ..Case::new("CTCLoss", 100, 71, &labels) };
    let (logits, x) = case.logits(11);
    let whole = session().run(&case.node(), &case.inputs(&logits)).expect("a loss");
    let row = |t: usize, b: usize| -> Vec<f64> {
        let x = &x[(t * 5 + b) * 71..][..71];
        let sum: f64 = x.iter().map(|v| v.exp()).sum();
        x.iter().map(|v| v.exp() / sum).collect()
    };
    for (b, got) in whole[0].to_f64().into_iter().enumerate() {
        let want = case.loss(b, &(0..100).map(|t| row(t, b)).collect::<Vec<_>>());
        assert!((got - want).abs() < 1e-4 * want, "sequence {b}: {got}, want {want}");
    }
    // Each step's gradient adds up to nothing.
    for (i, row) in whole[1].to_f64().chunks(71).enumerate() {
        assert!(row.iter().sum::<f64>().abs() < 1e-4, "row {i}");
    }
    let cut = session_of(40_000).run(&case.node(), &case.inputs(&logits)).expect("a loss");
    assert_eq!(whole, cut);
}

#[test]
fn arguments_that_tensorflow_refuses_are_refused() {
    let mut session = session();
    let small = Case::new("CTCLoss", 3, 4, &[&[0, 1], &[2]]);
    let v2 = Case::new("CTCLossV2", 3, 4, &[&[1, 2], &[2]]);
    let mut refused = |case: &Case, text: &str| {
        let (logits, _) = case.logits(1);
        match session.run(&case.node(), &case.inputs(&logits)) {
            Err(Error::InvalidArgument(m)) => assert!(m.contains(text), "{m}"),
            other => panic!("{text}: {other:?}"),
        }
    };
    let with = |labels: &[&[i32]]| Case::new("CTCLoss", 3, 4, labels);
    refused(&with(&[&[], &[1]]), "Labels length is zero in batch 0");
    refused(&with(&[&[3, 1]]), "non-null label");
    refused(&with(&[&[-1]]), "must be nonnegative");
    refused(&with(&[&[0, 1, 2, 1]]), "Not enough time");
    refused(&Case { lengths: vec![4, 3], ..small.clone() }, "sequence_length(0) <= 3");
    refused(&Case { lengths: vec![3, -1], ..small.clone() }, "seq_len(1) < 0");
    refused(&Case { lengths: vec![3], ..small.clone() }, "len(sequence_length) != batch_size");
    refused(&Case { time: 0, lengths: vec![0, 0], ..small }, "cannot be 0");
    refused(&Case { labels: vec![vec![4], vec![1]], ..v2 }, "greater than num_classes");
    let (logits, _) = with(&[&[0, 1]]).logits(1);
    for (places, text) in [
        ([0, 1, 0, 0], "out of order"),
        ([0, 1, 0, 1], "repeated"),
        ([0, 0, 1, 0], "out of bounds"),
        ([-1, 0, 0, 0], "out of bounds"),
    ] {
        let mut inputs = with(&[&[0, 1]]).inputs(&logits);
        inputs[1] = HostTensor::i64(&[2, 2], &places).into();
        match session.run(&with(&[&[0, 1]]).node(), &inputs) {
            Err(Error::InvalidArgument(m)) => assert!(m.contains(text), "{m}"),
            other => panic!("{text}: {other:?}"),
        }
    }
}
