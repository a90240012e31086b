//! Segment reductions against plain loops: every type, gaps, one segment, many, and unsorted ids.

use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor};

const OPS: [&str; 5] = ["SegmentSum", "SegmentMean", "SegmentProd", "SegmentMin", "SegmentMax"];

fn run(node: &Node, inputs: &[HostTensor], misalign: usize) -> Result<HostTensor, Error> {
    let mut session = Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers");
    session.misalign = misalign;
    let inputs: Vec<Input> = inputs.iter().cloned().map(Input::from).collect();
    session.run(node, &inputs).map(|mut o| o.remove(0))
}

fn ids(dtype: DType, values: &[i64]) -> HostTensor {
    match dtype {
        DType::I64 => HostTensor::i64(&[values.len()], values),
        _ => HostTensor::i32(&[values.len()], &values.iter().map(|v| *v as i32).collect::<Vec<_>>()),
    }
}

/// Small whole numbers, of products mostly 1 and -1, so that every order of operations gives the same.
fn value(op: &str, i: usize) -> f64 {
    if op == "SegmentProd" {
        return [1.0, -1.0, 1.0, 1.0, -1.0, 1.0, 1.0][i % 7] * if i.is_multiple_of(501) { 2.0 } else { 1.0 };
    }
    ((i * 37) % 11) as f64 - 5.0
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
        for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
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
                        let epsilon = if dtype == DType::F32 && op == "SegmentMean" { 1e-6 } else { 0.0 };
                        for (g, w) in got.to_f64().iter().zip(want.to_f64()) {
                            assert!((g - w).abs() <= epsilon, "{node:?} of {dims:?}: {g} should be {w}");
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
            Err(Error::InvalidArgument(m)) => assert!(m.contains(message), "{m:?} should say {message:?}"),
            other => panic!("should fail with {message:?}, gave {other:?}"),
        }
    }
}
