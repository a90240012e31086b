//! Softmax, LogSoftmax and the cross entropies against plain f64, in the styles of a software
//! adapter and of a GPU.

#[path = "numeric/close.rs"]
mod close;

use close::{assert_within, tolerance};
use tensorflow_wgpu::device::Profile;
use tensorflow_wgpu::dtype::DType::{self, *};
use tensorflow_wgpu::local::{Node, Session};
use tensorflow_wgpu::{Error, HostTensor};

/// Sessions on the adapter as it is, and under a GPU's profile.
fn sessions() -> [Session; 2] {
    let shared = Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers");
    [shared, Session::under(Profile::NVIDIA).unwrap()]
}

/// Logits in [-8, 8) as the type holds them.
fn logits(dtype: DType, dims: &[usize]) -> HostTensor {
    let n: usize = dims.iter().product();
    let values: Vec<f64> =
        (0..n).map(|i| ((i * 7919 + i / 13) % 1601) as f64 / 100.0 - 8.0).collect();
    HostTensor::floats(dtype, dims, &values)
}

#[track_caller]
fn assert_close(got: &HostTensor, wanted: &[f64], context: &str) {
    assert_within(got, wanted, |w| tolerance(got.dtype) * (w.abs() + 0.02), context);
}

/// Probabilities and logarithms of probabilities of one row.
fn reference(row: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = row.iter().map(|x| (x - largest).exp()).sum();
    let logs: Vec<f64> = row.iter().map(|x| x - largest - sum.ln()).collect();
    (row.iter().map(|x| (x - largest).exp() / sum).collect(), logs)
}

const SHAPES: &[&[usize]] = &[
    &[1],
    &[5],
    &[3, 1],
    &[4, 10],
    &[7, 9],
    &[2, 3, 33],
    &[5, 64],
    &[3, 65],
    &[2, 1025],
    &[3, 5001],
    &[1200, 100],
    &[0, 4],
    // Rows of whole vec4s for several lanes, aligned and not.
    &[2, 1024],
    &[3, 5000],
    &[3, 5000],
];

#[test]
fn softmax_and_its_logarithm() {
    for mut session in sessions() {
        for dtype in session.supported([F32, F64, F16, BF16]) {
            for (k, dims) in SHAPES.iter().enumerate() {
                session.misalign = k % 2;
                let x = logits(dtype, dims);
                let cols = dims[dims.len() - 1];
                let (mut soft, mut logs) = (Vec::new(), Vec::new());
                for row in x.to_f64().chunks(cols) {
                    let (s, l) = reference(row);
                    soft.extend(s);
                    logs.extend(l);
                }
                for (op, wanted) in [("Softmax", soft), ("LogSoftmax", logs)] {
                    let out =
                        session.run(&Node::new(op).attr("T", dtype), &[x.clone().into()]).unwrap();
                    assert_eq!(out[0].dims, x.dims);
                    assert_close(&out[0], &wanted, &format!("{op} {dims:?}"));
                }
            }
        }
    }
}

#[test]
fn long_and_many_rows() {
    for mut session in sessions() {
        for dims in [[2, 1_000_000], [70_000, 3], [1000, 16_001]] {
            let x = logits(F32, &dims);
            let out =
                session.run(&Node::new("LogSoftmax").attr("T", F32), &[x.clone().into()]).unwrap();
            let wanted: Vec<f64> =
                x.to_f64().chunks(dims[1]).flat_map(|row| reference(row).1).collect();
            assert_close(&out[0], &wanted, &format!("{dims:?}"));
        }
    }
}

/// Rows of more columns than the lanes of a workgroup take in one step of an iteration each.
#[test]
fn rows_of_more_iterations_than_loops_may_have() {
    let profile = sessions()[0].device.profile();
    let mut session = Session::under(Profile { loop_limit: 2000, ..profile }).unwrap();
    for (dtype, cols) in [(F32, 60_001), (F16, 60_002), (F32, 300_000), (F32, 900_001)] {
        check_rows(&mut session, dtype, cols);
    }
    check_rows(&mut sessions()[0], F32, 4_200_001);
}

fn check_rows(session: &mut Session, dtype: DType, cols: usize) {
    let x = logits(dtype, &[1, cols]);
    let (soft, logs) = reference(&x.to_f64());
    for (op, wanted) in [("Softmax", &soft), ("LogSoftmax", &logs)] {
        let out = session.run(&Node::new(op).attr("T", dtype), &[x.clone().into()]).unwrap();
        assert_close(&out[0], wanted, &format!("{op} {cols}"));
    }
    let node = Node::new("SparseSoftmaxCrossEntropyWithLogits").attr("T", dtype);
    let label = HostTensor::i32(&[1], &[cols as i32 - 2]);
    let inputs = [x.into(), label.into()];
    let out = session.run(&node.attr("Tlabels", I32), &inputs).unwrap();
    assert_close(&out[0], &[-logs[cols - 2]], &format!("loss of {cols}"));
    let mut gradient = soft;
    gradient[cols - 2] -= 1.0;
    assert_close(&out[1], &gradient, &format!("gradient of {cols}"));
}

#[test]
fn large_and_infinite_logits_are_stable() {
    let inf = f32::INFINITY;
    let x = [1e30, -1e30, 0.0, 5000.0, 5001.0, 5002.0, -inf, 0.0, 0.0];
    for mut session in sessions() {
        let out = session
            .run(&Node::new("Softmax").attr("T", F32), &[HostTensor::f32(&[3, 3], &x).into()])
            .unwrap();
        let wanted: Vec<f64> = x
            .chunks(3)
            .flat_map(|r| reference(&r.iter().map(|v| f64::from(*v)).collect::<Vec<_>>()).0)
            .collect();
        assert_close(&out[0], &wanted, "large logits");
    }
}

#[test]
fn rows_beyond_one_binding_are_processed_in_windows() {
    let limit = 1 << 20;
    let session = &mut Session::binding(limit as u64).unwrap();
    let rows = limit / 16 + 1001;
    let x: Vec<f32> = (0..rows * 4).map(|i| (i % 7) as f32).collect();
    let out = session
        .run(&Node::new("Softmax").attr("T", F32), &[HostTensor::f32(&[rows, 4], &x).into()])
        .unwrap();
    let got = out[0].values::<f32>();
    for row in (0..rows).step_by(997).chain([rows - 1]) {
        let logits: Vec<f64> = x[row * 4..row * 4 + 4].iter().map(|v| f64::from(*v)).collect();
        for (g, w) in got[row * 4..row * 4 + 4].iter().zip(reference(&logits).0) {
            assert!((f64::from(*g) - w).abs() < 1e-5, "row {row}: {g} {w}");
        }
    }
}

#[test]
fn dense_cross_entropy_broadcasts() {
    let shapes: &[(&[usize], &[usize], [usize; 2])] = &[
        (&[4, 3], &[4, 3], [4, 3]),
        (&[1, 3], &[4, 3], [4, 3]),
        (&[4, 3], &[1, 3], [4, 3]),
        (&[4, 3], &[4, 1], [4, 3]),
        (&[3], &[4, 3], [4, 3]),
        (&[], &[2, 5], [2, 5]),
        (&[6, 100], &[6, 100], [6, 100]),
        (&[3, 1025], &[3, 1025], [3, 1025]),
        (&[0, 3], &[0, 3], [0, 3]),
        (&[2, 0], &[2, 0], [2, 0]),
        (&[1, 8], &[4, 8], [4, 8]),
        (&[4, 8], &[8], [4, 8]),
        (&[4, 8], &[4, 8], [4, 8]),
        (&[4, 8], &[1, 8], [4, 8]),
    ];
    for mut session in sessions() {
        for dtype in session.supported([F32, F64, F16, BF16]) {
            for (k, (features, labels, [rows, cols])) in shapes.iter().enumerate() {
                session.misalign = k % 3;
                let x = logits(dtype, features);
                let n: usize = labels.iter().product();
                let t = HostTensor::floats(
                    dtype,
                    labels,
                    &(0..n).map(|i| (i % 5) as f64 / 16.0).collect::<Vec<_>>(),
                );
                let node = Node::new("SoftmaxCrossEntropyWithLogits").attr("T", dtype);
                let out = session.run(&node, &[x.clone().into(), t.clone().into()]).unwrap();
                let (x_values, t_values) = (x.to_f64(), t.to_f64());
                let at = |t: &HostTensor, v: &[f64], row: usize, col: usize| {
                    let extent =
                        |back: usize| t.dims.len().checked_sub(back).map_or(1, |d| t.dims[d]);
                    let (r, c) = (
                        if extent(2) == 1 { 0 } else { row },
                        if extent(1) == 1 { 0 } else { col },
                    );
                    v[r * extent(1) + c]
                };
                let (mut loss, mut gradient) = (Vec::new(), Vec::new());
                for r in 0..*rows {
                    let (soft, logs) =
                        reference(&(0..*cols).map(|c| at(&x, &x_values, r, c)).collect::<Vec<_>>());
                    loss.push((0..*cols).map(|c| -logs[c] * at(&t, &t_values, r, c)).sum());
                    gradient.extend((0..*cols).map(|c| soft[c] - at(&t, &t_values, r, c)));
                }
                assert_eq!(
                    (&out[0].dims[..], &out[1].dims[..]),
                    (&[*rows][..], &[*rows, *cols][..])
                );
                assert_close(&out[0], &loss, &format!("loss {features:?} {labels:?}"));
                assert_close(&out[1], &gradient, &format!("gradient {features:?} {labels:?}"));
            }
        }
    }
}

#[test]
fn sparse_cross_entropy_and_labels_out_of_range() {
    for mut session in sessions() {
        for dtype in [F32, F16, BF16] {
            for [rows, cols] in [[5, 1], [6, 10], [7, 9], [9, 100], [3, 2000], [0, 3]] {
                let x = logits(dtype, &[rows, cols]);
                // The last row's label is one too large, the first row's is negative.
                let labels: Vec<i64> = (0..rows as i64)
                    .map(|r| match r {
                        0 => -1,
                        r if r == rows as i64 - 1 => cols as i64,
                        r => r * 3 % cols as i64,
                    })
                    .collect();
                let (mut loss, mut gradient) = (Vec::new(), Vec::new());
                for (row, &label) in x.to_f64().chunks(cols).zip(&labels) {
                    let (soft, logs) = reference(row);
                    match usize::try_from(label).ok().filter(|l| *l < cols) {
                        Some(l) => {
                            loss.push(-logs[l]);
                            gradient.extend(
                                soft.iter()
                                    .enumerate()
                                    .map(|(c, s)| s - f64::from(u8::from(c == l))),
                            );
                        }
                        None => {
                            loss.push(f64::NAN);
                            gradient.extend(vec![f64::NAN; cols]);
                        }
                    }
                }
                for (index, t) in [
                    (I64, HostTensor::i64(&[rows], &labels)),
                    (
                        I32,
                        HostTensor::i32(
                            &[rows],
                            &labels.iter().map(|l| *l as i32).collect::<Vec<_>>(),
                        ),
                    ),
                ] {
                    let node = Node::new("SparseSoftmaxCrossEntropyWithLogits")
                        .attr("T", dtype)
                        .attr("Tlabels", index);
                    let out = session.run(&node, &[x.clone().into(), t.into()]).unwrap();
                    assert_close(&out[0], &loss, &format!("loss {rows} x {cols}"));
                    assert_close(&out[1], &gradient, &format!("gradient {rows} x {cols}"));
                }
            }
        }
    }
}

/// The fused op computes what the op does with its casts and the product, bit by bit.
#[test]
fn fused_cross_entropies_round_like_separate_nodes() {
    for mut session in sessions() {
        for dtype in [F32, F16, BF16] {
            for [rows, cols] in [[5, 1], [6, 10], [9, 100], [3, 2000], [0, 3]] {
                let x = logits(dtype, &[rows, cols]);
                let wide = HostTensor::floats(F32, &[rows, cols], &x.to_f64());
                // One label is out of range.
                let labels: Vec<i64> =
                    (0..rows as i64).map(|r| r * 3 % (cols as i64 + 1)).collect();
                let labels = HostTensor::i64(&[rows], &labels);
                let node = Node::new("SparseSoftmaxCrossEntropyWithLogits")
                    .attr("T", F32)
                    .attr("Tlabels", I64);
                let plain = session.run(&node, &[wide.into(), labels.clone().into()]).unwrap();
                let of_rows: Vec<f64> = (0..rows).map(|r| 0.3 - 0.1 * r as f64).collect();
                for scale in [
                    None,
                    Some(HostTensor::floats(F32, &[rows, 1], &of_rows)),
                    Some(HostTensor::f32(&[], &[0.3])),
                ] {
                    let node = Node::new("_WgpuFusedCrossEntropy")
                        .attr("T", dtype)
                        .attr("Tlabels", I64)
                        .attr("Tscale", &[F32][..usize::from(scale.is_some())])
                        .attr("Tbackprop", dtype);
                    let of_row = |i: usize| match &scale {
                        Some(scale) if scale.dims.is_empty() => scale.values::<f32>()[0],
                        Some(scale) => scale.values::<f32>()[i / cols],
                        None => 1.0,
                    };
                    let gradient = plain[1].values::<f32>().into_iter().enumerate();
                    let gradient: Vec<f64> =
                        gradient.map(|(i, g)| f64::from(g * of_row(i))).collect();
                    let want = HostTensor::floats(dtype, &[rows, cols], &gradient);
                    let inputs = [x.clone(), labels.clone()].into_iter().chain(scale.clone());
                    let inputs: Vec<_> = inputs.map(Into::into).collect();
                    let out = session.run(&node, &inputs).unwrap();
                    let same = |a: &HostTensor, b: &HostTensor| {
                        let (a, b) = (a.to_f64(), b.to_f64());
                        a.len() == b.len()
                            && a.iter().zip(&b).all(|(a, b)| a == b || a.is_nan() && b.is_nan())
                    };
                    assert!(same(&out[0], &plain[0]), "loss of {dtype} {rows} x {cols}");
                    assert!(same(&out[1], &want), "gradient of {dtype} {rows} x {cols}");
                }
            }
        }
    }
}

#[test]
fn arguments_are_checked() {
    let session = &mut sessions()[0];
    let ones = |dims: &[usize]| HostTensor::f32(dims, &vec![1.0; dims.iter().product()]);
    let mut message = |node: Node, inputs: Vec<HostTensor>| {
        let inputs: Vec<_> = inputs.into_iter().map(Into::into).collect();
        match session.run(&node.attr("T", F32), &inputs) {
            Err(Error::InvalidArgument(m)) => m,
            other => panic!("{other:?}"),
        }
    };
    let dense = || Node::new("SoftmaxCrossEntropyWithLogits");
    let broadcast = message(dense(), vec![ones(&[2, 3]), ones(&[2, 4])]);
    assert!(
        broadcast.contains(
            "logits and labels must be broadcastable: logits_size=[2,3] labels_size=[2,4]"
        )
    );
    assert!(
        message(dense(), vec![ones(&[3]), ones(&[3])]).contains("must be either 2-dimensional")
    );
    let sparse = || Node::new("SparseSoftmaxCrossEntropyWithLogits").attr("Tlabels", I64);
    let labels = |n: usize| HostTensor::i64(&[n], &vec![0; n]);
    let rows = message(sparse(), vec![ones(&[2, 3]), labels(3)]);
    assert!(rows.contains(
        "must have the same first dimension, got logits shape [2,3] and labels shape [3]"
    ));
    assert!(
        message(sparse(), vec![ones(&[3]), labels(1)])
            .contains("logits must be 2-D, but got shape [3]")
    );
    assert!(
        message(sparse(), vec![ones(&[2, 0]), labels(2)]).contains("Must have at least one class")
    );
    assert!(message(Node::new("Softmax"), vec![ones(&[])]).contains("dimension"));
}
