//! Segment reductions against plain loops: every type, gaps, one segment, many, and unsorted ids;
//! of rows picked by indices too.

#[path = "numeric/close.rs"]
mod close;

use close::{assert_within, tolerance};
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor};

const OPS: [&str; 5] = ["SegmentSum", "SegmentMean", "SegmentProd", "SegmentMin", "SegmentMax"];

fn run(node: &Node, inputs: &[HostTensor], misalign: usize) -> Result<HostTensor, Error> {
    let mut session =
        Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers");
    session.misalign = misalign;
    let inputs: Vec<Input> = inputs.iter().cloned().map(Input::from).collect();
    session.run(node, &inputs).map(|mut o| o.remove(0))
}

fn ids(dtype: DType, values: &[i64]) -> HostTensor {
    match dtype {
        DType::I64 => HostTensor::i64(&[values.len()], values),
        _ => {
            HostTensor::i32(&[values.len()], &values.iter().map(|v| *v as i32).collect::<Vec<_>>())
        }
    }
}

/// Small whole numbers, of products mostly 1 and -1, so that every order of operations gives the
/// same.
fn value(op: &str, i: usize) -> f64 {
    if op == "SegmentProd" {
        return [1.0, -1.0, 1.0, 1.0, -1.0, 1.0, 1.0][i % 7]
            * if i.is_multiple_of(501) { 2.0 } else { 1.0 };
    }
    ((i * 37) % 11) as f64 - 5.0
}

/// The types of `types` that the device supports.
fn supported<const N: usize>(types: [DType; N]) -> Vec<DType> {
    Session::shared().unwrap().supported(types)
}

#[test]
fn segments() {
    // The dims of data, and the id of each row.
    type Case = (&'static [usize], fn(usize) -> usize);
    let cases: &[Case] = &[
        (&[5], |i| [0, 0, 2, 2, 5][i]),
        (&[4, 3], |i| i / 2),
        (&[1, 2, 2], |_| 3),
        (&[0, 3], |i| i),
        (&[3, 0], |i| i),
        (&[300], |_| 0),
        (&[64, 2], |i| i / 64),
        (&[129, 1], |i| i / 64),
        (&[1000, 3], |i| i),
        (&[9000], |i| i / 3000 + i / 7),
        (&[9000], |i| i / 4500),
    ];
    for op in OPS {
        for dtype in supported([DType::F32, DType::F16, DType::BF16, DType::F64]) {
            for index in [DType::I32, DType::I64] {
                for (dims, id) in cases {
                    let (n, inner) = (dims[0], dims[1..].iter().product::<usize>());
                    let v: Vec<f64> = (0..n * inner).map(|i| value(op, i)).collect();
                    let id: Vec<usize> = (0..n).map(id).collect();
                    let segments = id.last().map_or(0, |last| last + 1);
                    let mut want = vec![None::<f64>; segments * inner];
                    let mut rows = vec![0.0; segments];
                    for (r, s) in id.iter().enumerate() {
                        rows[*s] += 1.0;
                        for k in 0..inner {
                            let (v, want) = (v[r * inner + k], &mut want[s * inner + k]);
                            *want = Some(want.map_or(v, |w| match op {
                                "SegmentProd" => w * v,
                                "SegmentMin" => w.min(v),
                                "SegmentMax" => w.max(v),
                                _ => w + v,
                            }));
                        }
                    }
                    let empty = if op == "SegmentProd" { 1.0 } else { 0.0 };
                    let mean = |(i, v): (usize, &Option<f64>)| match (op, v) {
                        ("SegmentMean", Some(v)) => v / rows[i / inner],
                        (_, v) => v.unwrap_or(empty),
                    };
                    let want: Vec<f64> = want.iter().enumerate().map(mean).collect();
                    let out = [&[segments], &dims[1..]].concat();
                    let want = HostTensor::floats(dtype, &out, &want);
                    let node = Node::new(op).attr("T", dtype).attr("Tindices", index);
                    let x = HostTensor::floats(dtype, dims, &v);
                    let id = ids(index, &id.iter().map(|i| *i as i64).collect::<Vec<_>>());
                    for misalign in [0, 1] {
                        let got = run(&node, &[x.clone(), id.clone()], misalign).expect("runs");
                        assert_eq!(got.dims, want.dims, "{node:?} of {dims:?}");
                        let epsilon =
                            if dtype == DType::F32 && op == "SegmentMean" { 1e-6 } else { 0.0 };
                        for (g, w) in got.to_f64().iter().zip(want.to_f64()) {
                            assert!(
                                (g - w).abs() <= epsilon,
                                "{node:?} of {dims:?}: {g} should be {w}"
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn errors() {
    let node = Node::new("SegmentSum").attr("T", DType::F32).attr("Tindices", DType::I64);
    let x = HostTensor::f32(&[2], &[1.0, 2.0]);
    for (x, id, message) in [
        (&x, ids(DType::I64, &[1, 0]), "segment ids are not increasing"),
        (&x, ids(DType::I64, &[-1, 0]), "segment ids must be >= 0"),
        (&x, ids(DType::I64, &[0, -1]), "segment ids must be >= 0"),
        (&x, ids(DType::I64, &[0]), "segment_ids should be the same size as dimension 0 of input."),
        (&x, HostTensor::i64(&[2, 1], &[0, 0]), "segment_ids should be a vector."),
        (&HostTensor::f32(&[], &[1.0]), ids(DType::I64, &[0]), "input must be at least rank 1"),
    ] {
        match run(&node, &[x.clone(), id], 0) {
            Err(Error::InvalidArgument(m)) => {
                assert!(m.contains(message), "{m:?} should say {message:?}")
            }
            other => panic!("should fail with {message:?}, gave {other:?}"),
        }
    }
}

/// (Rows of data, elements of a row, index and ascending segment id of each place).
fn picked() -> Vec<(usize, usize, Vec<usize>, Vec<usize>)> {
    let places = |n: usize, f: fn(usize) -> usize| (0..n).map(f).collect::<Vec<_>>();
    vec![
        (5, 1, vec![4, 0, 0, 2, 4], vec![0, 0, 2, 2, 5]),
        (4, 3, vec![3, 3, 1], vec![1, 1, 2]),
        (3, 2, vec![], vec![]),
        (3, 0, vec![2, 1], vec![0, 1]),
        (1, 2, vec![0; 300], vec![0; 300]),
        (70, 3, places(3000, |i| i * 31 % 70), places(3000, |i| i / 9)),
    ]
}

fn node(form: &str, suffix: &str, [dtype, index, id]: [DType; 3]) -> Node {
    let node = Node::new(&format!("SparseSegment{form}{suffix}"));
    node.attr("T", dtype).attr("Tidx", index).attr("Tsegmentids", id)
}

fn all(node: &Node, inputs: &[HostTensor], misalign: usize) -> Result<Vec<HostTensor>, Error> {
    let mut session =
        Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers");
    session.misalign = misalign;
    session.run(node, &inputs.iter().cloned().map(Input::from).collect::<Vec<_>>())
}

fn assert_near(got: &HostTensor, dims: &[usize], want: &[f64], what: &str) {
    assert_eq!(got.dims[..], *dims, "{what}");
    let bound = match got.dtype {
        DType::F16 => 1e-3,
        DType::BF16 => 8e-3,
        dtype => tolerance(dtype),
    };
    assert_within(got, want, |w| bound * w.abs().max(1.0), what);
}

#[test]
fn sparse_segments_and_gradients() {
    let (i32s, i64s) = (DType::I32, DType::I64);
    let types = [
        [DType::F32, i32s, i32s],
        [DType::F32, i64s, i32s],
        [DType::F16, i32s, i64s],
        [DType::BF16, i64s, i64s],
        [DType::F64, i32s, i32s],
    ];
    for form in ["Sum", "Mean", "SqrtN"] {
        for types @ [dtype, index, id] in types {
            if supported([dtype]).is_empty() {
                continue;
            }
            for (misalign, (rows, inner, indices, places)) in picked().into_iter().enumerate() {
                let misalign = misalign % 2;
                let segments = places.last().map_or(0, |last| last + 1);
                let mut sizes = vec![0.0f64; segments + 2];
                places.iter().for_each(|s| sizes[*s] += 1.0);
                let divisor = |s: usize| match form {
                    "Sum" => 1.0,
                    "Mean" => sizes[s].max(1.0),
                    _ => sizes[s].max(1.0).sqrt(),
                };
                let tensor =
                    |t, v: &[usize]| ids(t, &v.iter().map(|v| *v as i64).collect::<Vec<_>>());
                let (at, to) = (tensor(index, &indices), tensor(id, &places));
                let x: Vec<f64> = (0..rows * inner).map(|i| value("", i)).collect();
                let data = HostTensor::floats(dtype, &[rows, inner], &x);
                let mut want = vec![0.0; (segments + 2) * inner];
                for (i, s) in indices.iter().zip(&places) {
                    (0..inner).for_each(|k| want[s * inner + k] += x[i * inner + k] / divisor(*s));
                }
                let op = node(form, "", types);
                let got =
                    all(&op, &[data.clone(), at.clone(), to.clone()], misalign).expect("runs");
                assert_near(
                    &got[0],
                    &[segments, inner],
                    &want[..segments * inner],
                    &format!("{op:?}"),
                );
                for count in [segments + 2, segments / 2] {
                    let op = node(form, "WithNumSegments", types).attr("Tnumsegments", i32s);
                    let count_in = HostTensor::i32(&[], &[count as i32]);
                    let got = all(&op, &[data.clone(), at.clone(), to.clone(), count_in], misalign)
                        .expect("runs");
                    let want = &want[..count * inner];
                    assert_near(&got[0], &[count, inner], want, &format!("{op:?}, {count}"));
                }

                let g: Vec<f64> = (0..(segments + 2) * inner).map(|i| value("", i + 3)).collect();
                let grad = HostTensor::floats(dtype, &[segments + 2, inner], &g);
                let mut want = vec![0.0; rows * inner];
                for (i, s) in indices.iter().zip(&places) {
                    (0..inner).for_each(|k| want[i * inner + k] += g[s * inner + k] / divisor(*s));
                }
                let inputs = [grad, at, to, HostTensor::i32(&[], &[rows as i32])];
                let op = node(form, "Grad", types);
                let got = all(&op, &inputs, misalign).expect("runs");
                assert_near(&got[0], &[rows, inner], &want, &format!("{op:?}"));
                let op = node(form, "GradV2", types);
                let got = all(&op, &inputs, misalign).expect("runs");
                let mut used = indices.clone();
                used.sort_unstable();
                used.dedup();
                let want: Vec<f64> =
                    used.iter().flat_map(|r| want[r * inner..][..inner].to_vec()).collect();
                assert_near(&got[0], &[used.len(), inner], &want, &format!("{op:?}"));
                assert_eq!(got[1], tensor(index, &used), "{op:?}");
            }
        }
    }
}

#[test]
fn bad_places() {
    let (f, i) = (DType::F32, DType::I32);
    let x = HostTensor::f32(&[4, 1], &[1.0, 2.0, 3.0, 4.0]);
    let v = |values: &[i64]| ids(i, values);
    let size = HostTensor::i32(&[], &[3]);
    // An error appears only at a wait; without one, out-of-range ids are dropped.
    let op = node("Sum", "WithNumSegments", [f, i, i]).attr("Tnumsegments", i);
    let got =
        all(&op, &[x.clone(), v(&[0, 4, -1, 1]), v(&[0, 0, 1, 3]), size.clone()], 0).expect("runs");
    assert_eq!(got[0].to_f64(), [1.0, 0.0, 0.0]);
    let got = all(
        &node("Sum", "Grad", [f, i, i]),
        &[x.clone(), v(&[0, 3, -1, 1]), v(&[0, 0, 1, 9]), size.clone()],
        0,
    );
    assert_eq!(got.expect("runs")[0].to_f64(), [1.0, 0.0, 0.0]);
    for (suffix, at, to, message) in [
        ("", v(&[0, 4]), v(&[0, 1]), "Bad: indices[1] == 4 out of range [0, 4)"),
        ("", v(&[-1, 7]), v(&[0, 1]), "Bad: indices[0] == -1 out of range [0, 4)"),
        ("", v(&[0, 1]), v(&[1, 0]), "segment ids are not increasing"),
        ("", v(&[0, 1]), v(&[0]), "segment_ids and indices should have same size."),
        ("GradV2", v(&[0, 3]), v(&[0, 1]), "Index 3 out of range [0, 3)."),
        ("Grad", v(&[0, 1]), v(&[0]), "segment_ids and indices should have same size."),
    ] {
        let mut inputs = vec![x.clone(), at, to];
        if !suffix.is_empty() {
            inputs.push(size.clone());
        }
        match all(&node("Mean", suffix, [f, i, i]), &inputs, 0) {
            Err(Error::InvalidArgument(m)) => {
                assert!(m.contains(message), "{m:?} should say {message:?}")
            }
            other => panic!("should fail with {message:?}, gave {other:?}"),
        }
    }
}
