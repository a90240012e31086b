//! Data movement against plain index arithmetic: every element size, empty and scalar tensors, rank
//! 8, odd extents, addresses inside other tensors, more workgroups than one dimension holds, and
//! more bytes than one binding.

mod diagonals;
mod dynamic;
mod joins;
mod repeats;
mod slices;
mod transpose;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tensorflow_wgpu::device::{Capabilities, Device, Profile};
use tensorflow_wgpu::kernels::movement::walk::{Tiling, copy_strided_with};
use tensorflow_wgpu::layout::{Iteration, dense_strides};
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor, Tensor};

/// One type for each element size.
const SIZES: [DType; 5] = [DType::U8, DType::F16, DType::F32, DType::I64, DType::C128];

fn session() -> Session {
    Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers")
}

/// A tensor whose bytes identify the elements.
fn data(dtype: DType, dims: &[usize], seed: usize) -> HostTensor {
    let n = dims.iter().product::<usize>() * dtype.size();
    let bytes = (0..n).map(|i| ((i + seed * 7919).wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
    HostTensor { dtype, dims: dims.into(), bytes }
}

fn coordinates(dims: &[usize]) -> Vec<Vec<usize>> {
    let n: usize = dims.iter().product();
    (0..n)
        .map(|mut i| {
            let mut c = vec![0; dims.len()];
            for d in (0..dims.len()).rev() {
                c[d] = i % dims[d];
                i /= dims[d];
            }
            c
        })
        .collect()
}

fn flat(dims: &[usize], c: &[usize]) -> usize {
    c.iter().zip(dims).fold(0, |at, (c, n)| at * n + c)
}

/// The tensor whose element at each coordinate comes from the input's element at
/// `source(coordinate)`, or is zero.
fn reference(
    x: &HostTensor,
    out: &[usize],
    source: impl Fn(&[usize]) -> Option<Vec<usize>>,
) -> HostTensor {
    let size = x.dtype.size();
    let mut bytes = Vec::new();
    for c in coordinates(out) {
        match source(&c) {
            Some(s) => bytes.extend_from_slice(&x.bytes[flat(&x.dims, &s) * size..][..size]),
            None => bytes.extend(vec![0; size]),
        }
    }
    HostTensor { dtype: x.dtype, dims: out.into(), bytes }
}

fn i32s(values: &[i64]) -> HostTensor {
    HostTensor::i32(&[values.len()], &values.iter().map(|v| *v as i32).collect::<Vec<_>>())
}

fn run(
    session: &mut Session,
    node: &Node,
    inputs: &[HostTensor],
) -> Result<Vec<HostTensor>, Error> {
    let inputs: Vec<Input> = inputs.iter().cloned().map(Input::from).collect();
    session.run(node, &inputs)
}

/// Runs the node with aligned and with misaligned inputs and compares the outputs.
fn check(node: &Node, inputs: &[HostTensor], want: &[HostTensor]) {
    let mut session = session();
    for misalign in [0, 1] {
        session.misalign = misalign;
        let got = run(&mut session, node, inputs).unwrap_or_else(|e| panic!("{node:?}: {e}"));
        assert_eq!(got.len(), want.len(), "{node:?}");
        for (g, w) in got.iter().zip(want) {
            assert_eq!(g.dims, w.dims, "{node:?}");
            assert_eq!(g.dtype, w.dtype, "{node:?}");
            if let Some(i) = (0..w.bytes.len()).find(|i| g.bytes[*i] != w.bytes[*i]) {
                panic!(
                    "{node:?} misaligned by {misalign}: byte {i} of shape {:?}: {:?}",
                    w.dims,
                    (g.bytes[i], w.bytes[i])
                );
            }
        }
    }
}

fn fails(node: &Node, inputs: &[HostTensor], message: &str) {
    match run(&mut session(), node, inputs) {
        Err(Error::InvalidArgument(m)) => {
            assert!(m.contains(message), "{m:?} should say {message:?}")
        }
        other => panic!("{node:?} should fail with {message:?}, gave {other:?}"),
    }
}

fn typed(op: &str, dtype: DType) -> Node {
    Node::new(op).attr("T", dtype)
}

#[test]
fn fills_and_ranges() {
    for dtype in session().supported(SIZES) {
        for dims in [&[][..], &[0], &[7], &[3, 5, 2]] {
            let value = data(dtype, &[], 30);
            let shape: Vec<i64> = dims.iter().map(|n| *n as i64).collect();
            let want = reference(&value, dims, |_| Some(vec![]));
            let node = typed("Fill", dtype).attr("index_type", DType::I32);
            check(&node, &[i32s(&shape), value], &[want]);
            let x = data(dtype, dims, 31);
            check(
                &typed("ZerosLike", dtype),
                std::slice::from_ref(&x),
                &[reference(&x, dims, |_| None)],
            );
        }
    }
    let ones = |dtype: DType| {
        let got = run(&mut session(), &typed("OnesLike", dtype), &[data(dtype, &[3], 0)])
            .unwrap()
            .remove(0);
        got.to_f64()
    };
    for dtype in session().supported([
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::F64,
        DType::I64,
        DType::U8,
        DType::I16,
        DType::U32,
        DType::Bool,
    ]) {
        assert_eq!(ones(dtype), [1.0; 3], "{dtype}");
    }
    let complex =
        run(&mut session(), &typed("OnesLike", DType::C64), &[data(DType::C64, &[2], 0)]).unwrap();
    assert_eq!(complex[0].bytes, bytemuck::cast_slice::<f32, u8>(&[1.0, 0.0, 1.0, 0.0]));

    let range = |dtype: DType, values: [f64; 3]| {
        let scalar = |v: f64| match dtype {
            DType::I64 => HostTensor::i64(&[], &[v as i64]),
            _ => HostTensor::floats(dtype, &[], &[v]),
        };
        run(&mut session(), &Node::new("Range").attr("Tidx", dtype), &values.map(scalar))
            .map(|t| t[0].to_f64())
    };
    for dtype in session().supported([DType::F32, DType::F64, DType::F16, DType::BF16, DType::I64])
    {
        assert_eq!(range(dtype, [1.0, 8.0, 3.0]).unwrap(), [1.0, 4.0, 7.0], "{dtype}");
        assert_eq!(range(dtype, [5.0, -1.0, -2.0]).unwrap(), [5.0, 3.0, 1.0], "{dtype}");
        assert_eq!(range(dtype, [2.0, 2.0, 1.0]).unwrap(), [0.0; 0], "{dtype}");
        assert!(matches!(range(dtype, [2.0, 1.0, 1.0]),
                Err(Error::InvalidArgument(m)) if m.contains("Requires start <= limit")));
        assert!(matches!(range(dtype, [2.0, 1.0, 0.0]),
                Err(Error::InvalidArgument(m)) if m.contains("Requires delta != 0")));
    }
    // As many elements as the count has in the operands' type: a count in float64 would give 11 of
    // them in float32.
    for (dtype, n) in [(DType::F32, 10), (DType::F64, 10), (DType::F16, 10), (DType::BF16, 10)] {
        if !session().runs(dtype) {
            continue;
        }
        assert_eq!(range(dtype, [0.1, 1.1, 0.1]).unwrap().len(), n, "{dtype}");
    }
    let fill = typed("Fill", DType::F32).attr("index_type", DType::I32);
    fails(&fill, &[i32s(&[2]), data(DType::F32, &[2], 0)], "value must be a scalar, got shape [2]");
    fails(&fill, &[i32s(&[-2]), data(DType::F32, &[], 0)], "must be >= 0");
}

/// 65,535 workgroups of 256 packed words or elements, and one more.
#[test]
fn more_workgroups_than_one_dimension_holds() {
    let n = 65_535 * 256 + 1000;
    let x = data(DType::F32, &[2, n / 2], 1);
    let got =
        run(&mut session(), &typed("Transpose", DType::F32), &[x.clone(), i32s(&[1, 0])]).unwrap();
    for i in [0, 1, 2, n / 2, n - 2, n - 1] {
        let (r, c) = (i / 2, i % 2);
        assert_eq!(
            got[0].bytes[i * 4..][..4],
            x.bytes[(c * (n / 2) + r) * 4..][..4],
            "element {i}"
        );
    }
}

/// Source and destination exceed the largest binding: the walk is cut into windows.
#[test]
fn moves_beyond_one_binding() {
    let limit = 1 << 20;
    let mut session = Session::binding(limit as u64).unwrap();
    let rows = 5000;
    let columns = (limit as usize / 4 / rows) + 37;
    let x = data(DType::F32, &[rows, columns], 1);
    let element = |t: &HostTensor, i: usize| t.bytes[i * 4..][..4].to_vec();
    let got = run(&mut session, &typed("Transpose", DType::F32), &[x.clone(), i32s(&[1, 0])])
        .unwrap()
        .remove(0);
    for i in (0..rows * columns).step_by(9973) {
        assert!(
            element(&got, i) == element(&x, (i % rows) * columns + i / rows),
            "transposed element {i}"
        );
    }
    let slice = [x.clone(), i32s(&[1, 1]), i32s(&[-1, -1])];
    let got = run(&mut session, &typed("Slice", DType::F32), &slice).unwrap().remove(0);
    for i in (0..(rows - 1) * (columns - 1)).step_by(9973) {
        let (r, c) = (i / (columns - 1), i % (columns - 1));
        assert!(element(&got, i) == element(&x, (r + 1) * columns + c + 1), "sliced element {i}");
    }
    let tile = typed("Tile", DType::F32).attr("Tmultiples", DType::I32);
    let got = run(&mut session, &tile, &[data(DType::F32, &[1001], 2), i32s(&[40_000])])
        .unwrap()
        .remove(0);
    let small = data(DType::F32, &[1001], 2);
    for i in (0..1001 * 40_000).step_by(9973) {
        assert!(element(&got, i) == element(&small, i % 1001), "tiled element {i}");
    }
    let paddings = HostTensor::i32(&[2, 2], &[1, 0, 0, 1]);
    let pad = typed("Pad", DType::F32).attr("Tpaddings", DType::I32);
    let got = run(&mut session, &pad, &[x.clone(), paddings]).unwrap().remove(0);
    for i in (0..(rows + 1) * (columns + 1)).step_by(997) {
        let (r, c) = (i / (columns + 1), i % (columns + 1));
        let want =
            if r == 0 || c == columns { vec![0; 4] } else { element(&x, (r - 1) * columns + c) };
        assert!(element(&got, i) == want, "padded element {i}");
    }
}
