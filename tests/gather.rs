//! Gathers, scatters and segment reductions against plain loops: all element sizes for moves, all
//! number types for arithmetic, duplicates, out-of-range indices, long chains, tables beyond one
//! binding.

#[path = "numeric/bindings.rs"]
mod bindings;

use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor};

const SIZES: [DType; 5] = [DType::U8, DType::F16, DType::F32, DType::I64, DType::C128];
const INDEX: [DType; 2] = [DType::I32, DType::I64];

fn session() -> Session {
    Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers")
}

fn data(dtype: DType, dims: &[usize], seed: usize) -> HostTensor {
    let n = dims.iter().product::<usize>() * dtype.size();
    let bytes = (0..n).map(|i| ((i + seed * 7919).wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
    HostTensor { dtype, dims: dims.into(), bytes }
}

fn indices(dtype: DType, dims: &[usize], values: &[i64]) -> HostTensor {
    match dtype {
        DType::I64 => HostTensor::i64(dims, values),
        DType::I32 => HostTensor::i32(dims, &values.iter().map(|v| *v as i32).collect::<Vec<_>>()),
        _ => HostTensor::of(dtype, dims, &values.iter().map(|v| *v as u8).collect::<Vec<_>>()),
    }
}

fn run(node: &Node, inputs: &[HostTensor], misalign: usize) -> Result<HostTensor, Error> {
    let mut session = session();
    session.misalign = misalign;
    let inputs: Vec<Input> = inputs.iter().cloned().map(Input::from).collect();
    session.run(node, &inputs).map(|mut o| o.remove(0))
}

fn check(node: &Node, inputs: &[HostTensor], want: &HostTensor) {
    for misalign in [0, 1] {
        let got = run(node, inputs, misalign).unwrap_or_else(|e| panic!("{node:?}: {e}"));
        assert_eq!((&got.dims, got.dtype), (&want.dims, want.dtype), "{node:?}");
        assert!(got.bytes == want.bytes, "{node:?} misaligned by {misalign}");
    }
}

fn fails(node: &Node, inputs: &[HostTensor], message: &str) {
    match run(node, inputs, 0) {
        Err(Error::InvalidArgument(m)) => {
            assert!(m.contains(message), "{m:?} should say {message:?}")
        }
        other => panic!("{node:?} should fail with {message:?}, gave {other:?}"),
    }
}

/// Row `r` of `x` seen as rows of `row` elements, or zeros.
fn row_or_zeros(x: &HostTensor, row: usize, r: Option<usize>) -> Vec<u8> {
    let n = row * x.dtype.size();
    r.map_or(vec![0; n], |r| x.bytes[r * n..][..n].to_vec())
}

fn in_range(i: i64, n: usize) -> Option<usize> {
    usize::try_from(i).ok().filter(|i| *i < n)
}

#[test]
fn gather_v2() {
    // params, indices' dims and values, axis, batch dims
    type Case = (&'static [usize], &'static [usize], &'static [i64], i64, i64);
    let cases: &[Case] = &[
        (&[5], &[], &[3], 0, 0),
        (&[5, 3], &[4], &[4, 0, -1, 5], 0, 0),
        (&[5, 4], &[2, 3], &[4, 0, 1, 1, 2, 9], 0, 0),
        (&[3, 5], &[4], &[4, 0, -1, 2], 1, 0),
        (&[3, 5, 2], &[3], &[4, 0, 2], -2, 0),
        (&[2, 5, 3], &[2, 2], &[4, 0, 2, 7], 1, 1),
        (&[2, 3, 5, 2], &[2, 3], &[4, 0, 1, 0, 2, 3], 2, 1),
        (&[2, 3, 5], &[2, 4], &[4, 0, -1, 2, 3, 5, 1, 1], 2, 1),
        (&[2, 3, 5], &[2, 3, 2], &[4, 0, 1, 0, 2, 3, 1, 1, 0, 0, 4, 4], 2, 2),
        (&[5, 3], &[0], &[], 0, 0),
        (&[0, 3], &[2], &[0, 1], 0, 0),
    ];
    for (dims, index_dims, values, axis, batch_dims) in cases {
        for dtype in session().supported(SIZES.into_iter().chain([DType::I32])) {
            for index in INDEX {
                let x = data(dtype, dims, 1);
                let a = axis.rem_euclid(dims.len() as i64) as usize;
                let b = *batch_dims as usize;
                let (batch, outer): (usize, usize) =
                    (dims[..b].iter().product(), dims[b..a].iter().product());
                let row: usize = dims[a + 1..].iter().product();
                let count: usize = index_dims[b..].iter().product();
                let mut bytes = Vec::new();
                for s in 0..batch * outer {
                    for n in 0..count {
                        let r = in_range(values[(s / outer) * count + n], dims[a])
                            .map(|r| s * dims[a] + r);
                        bytes.extend(row_or_zeros(&x, row, r));
                    }
                }
                let out: Vec<usize> = [&dims[..a], &index_dims[b..], &dims[a + 1..]].concat();
                let want = HostTensor { dtype, dims: out.as_slice().into(), bytes };
                let i = indices(index, index_dims, values);
                let node = Node::new("GatherV2").attr("Tparams", dtype).attr("Tindices", index);
                let node = node.attr("batch_dims", *batch_dims);
                check(&node, &[x.clone(), i.clone(), HostTensor::i32(&[], &[*axis as i32])], &want);
                if *axis == 0 {
                    let node = Node::new("Gather").attr("Tparams", dtype).attr("Tindices", index);
                    check(&node, &[x, i], &want);
                }
            }
        }
    }
    let node = Node::new("GatherV2")
        .attr("Tparams", DType::F32)
        .attr("Tindices", DType::I32)
        .attr("batch_dims", 1);
    let (x, i) = (data(DType::F32, &[2, 3], 0), indices(DType::I32, &[3, 1], &[0, 0, 0]));
    let axis = |a: i32| HostTensor::i32(&[], &[a]);
    fails(
        &node,
        &[x.clone(), i.clone(), axis(1)],
        "params.shape[0]: 2 should be equal to indices.shape[0]: 3",
    );
    fails(&node, &[x.clone(), i.clone(), axis(0)], "must be less than or equal to axis");
    fails(&node, &[x, i, axis(2)], "Expected axis in the range [-2, 2), but got 2");
}

#[test]
fn gather_nd() {
    let cases: &[(&[usize], &[usize], &[i64])] = &[
        (&[4, 3], &[2, 2], &[1, 2, 3, 0]),
        (&[4, 3], &[3, 1], &[3, 0, 4]),
        (&[4, 3, 2], &[2, 2, 2], &[1, 2, 3, 0, 0, 3, -1, 0]),
        (&[4, 3, 2], &[3], &[3, 2, 1]),
        (&[4, 3], &[4, 2], &[3, 2, 0, 3, -1, 1, 2, 0]),
        (&[4, 3, 2], &[4, 3], &[3, 2, 1, 1, 1, 2, 4, 0, 0, 0, 2, 0]),
        (&[4, 3], &[2, 0], &[]),
        (&[2, 2, 2, 2, 2, 2], &[2, 6], &[1, 0, 1, 1, 0, 1, 0, 1, 0, 0, 1, 0]),
    ];
    for (dims, index_dims, values) in cases {
        for dtype in session().supported(SIZES) {
            for index in INDEX {
                if dtype == DType::U8 {
                    continue;
                }
                let x = data(dtype, dims, 2);
                let (depth, lead) =
                    (index_dims[index_dims.len() - 1], &index_dims[..index_dims.len() - 1]);
                let row: usize = dims[depth..].iter().product();
                let mut bytes = Vec::new();
                for n in 0..lead.iter().product() {
                    let at = (0..depth).try_fold(0, |at, d| {
                        Some(at * dims[d] + in_range(values[n * depth + d], dims[d])?)
                    });
                    bytes.extend(row_or_zeros(&x, row, at));
                }
                let want = HostTensor {
                    dtype,
                    dims: [lead, &dims[depth..]].concat().as_slice().into(),
                    bytes,
                };
                let node = Node::new("GatherNd").attr("Tparams", dtype).attr("Tindices", index);
                check(&node, &[x, indices(index, index_dims, values)], &want);
            }
        }
    }
    let node = Node::new("GatherNd").attr("Tparams", DType::F32).attr("Tindices", DType::I32);
    let i = indices(DType::I32, &[1, 3], &[0, 0, 0]);
    fails(&node, &[data(DType::F32, &[2, 3], 0), i], "must be <= params rank; saw: 3 vs. 2");
}

#[test]
fn one_hot() {
    for dtype in session().supported(SIZES.into_iter().chain([DType::I32, DType::Bool])) {
        for index in [DType::U8, DType::I8, DType::I32, DType::I64] {
            for (dims, axis, depth) in [
                (&[][..], -1i64, 4usize),
                (&[5], -1, 3),
                (&[5], 0, 3),
                (&[2, 3], 1, 4),
                (&[3], -1, 0),
                (&[3], -1, 256),
            ] {
                let n: usize = dims.iter().product();
                // Out of range for most depths; as an int8 negative, so for all.
                let large = if index == DType::I8 { -56 } else { 200 };
                let values: Vec<i64> =
                    (0..n as i64).map(|i| if i == 1 { large } else { i % 4 }).collect();
                let (on, off) = (data(dtype, &[], 3), data(dtype, &[], 4));
                let a = if axis < 0 { dims.len() } else { axis as usize };
                let inner: usize = dims[a..].iter().product();
                let mut bytes = Vec::new();
                for outer in 0..dims[..a].iter().product() {
                    for d in 0..depth {
                        for k in 0..inner {
                            let hit = values[outer * inner + k] == d as i64;
                            bytes.extend_from_slice(if hit { &on.bytes } else { &off.bytes });
                        }
                    }
                }
                let mut out = dims.to_vec();
                out.insert(a, depth);
                let want = HostTensor { dtype, dims: out.as_slice().into(), bytes };
                let node =
                    Node::new("OneHot").attr("T", dtype).attr("TI", index).attr("axis", axis);
                let depth = HostTensor::i32(&[], &[depth as i32]);
                check(&node, &[indices(index, dims, &values), depth, on, off], &want);
            }
        }
    }
    let node = Node::new("OneHot").attr("T", DType::F32).attr("TI", DType::I32).attr("axis", 3);
    let one = data(DType::F32, &[], 0);
    let inputs = [indices(DType::I32, &[2], &[0, 1]), HostTensor::i32(&[], &[3]), one.clone(), one];
    fails(&node, &inputs, "Expected axis to be -1 or between [0, 2).  But received: 3");
}

#[test]
fn dynamic_stitch() {
    for dtype in session().supported(SIZES.into_iter().chain([DType::I32])) {
        let (a, b) = (data(dtype, &[2, 3], 1), data(dtype, &[2, 2, 3], 2));
        let rows = |x: &HostTensor, r: usize| row_or_zeros(x, 3, Some(r));
        // Row 3 stays unnamed; row 1 is named twice, the later pair wins.
        let (i, j) = (HostTensor::i32(&[2], &[1, 0]), HostTensor::i32(&[2, 2], &[5, 2, 1, 4]));
        let bytes = [
            rows(&a, 1),
            rows(&b, 2),
            rows(&b, 1),
            row_or_zeros(&a, 3, None),
            rows(&b, 3),
            rows(&b, 0),
        ]
        .concat();
        let want = HostTensor { dtype, dims: [6, 3].as_slice().into(), bytes };
        let node = Node::new("DynamicStitch").attr("T", dtype).attr("N", 2);
        check(&node, &[i, j, a, b], &want);
    }
}

fn numbers(dtype: DType, dims: &[usize], seed: usize) -> HostTensor {
    let n: usize = dims.iter().product();
    // Small halves for floats, small integers else: sums and products are exact in every type.
    let value =
        |i: usize| ((i * 5 + seed * 3) % 7) as f64 - if dtype_unsigned(dtype) { 0.0 } else { 3.0 };
    of_f64(dtype, dims, &(0..n).map(value).collect::<Vec<_>>())
}

fn dtype_unsigned(dtype: DType) -> bool {
    matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64)
}

fn of_f64(dtype: DType, dims: &[usize], v: &[f64]) -> HostTensor {
    macro_rules! ints {
        ($t:ty) => {
            HostTensor::of(dtype, dims, &v.iter().map(|v| *v as $t).collect::<Vec<_>>())
        };
    }
    match dtype {
        DType::I8 => ints!(i8),
        DType::I16 => ints!(i16),
        DType::I32 => ints!(i32),
        DType::I64 => ints!(i64),
        DType::U8 => ints!(u8),
        DType::U16 => ints!(u16),
        DType::U32 => ints!(u32),
        DType::U64 => ints!(u64),
        _ => HostTensor::floats(dtype, dims, v),
    }
}

fn fold(op: &str, acc: f64, v: f64) -> f64 {
    match op {
        "Update" => v,
        "Add" | "Sum" => acc + v,
        "Sub" => acc - v,
        "Mul" | "Prod" => acc * v,
        "Div" => acc / v,
        "Min" => acc.min(v),
        "Max" => acc.max(v),
        _ => unreachable!("{op}"),
    }
}

/// Folds updates in order into rows of `inner`; indices out of range are dropped.
fn folded(
    op: &str,
    base: &[f64],
    rows: &[Option<usize>],
    updates: &[f64],
    inner: usize,
) -> Vec<f64> {
    let mut out = base.to_vec();
    for (n, row) in rows.iter().enumerate() {
        for k in 0..inner {
            if let Some(r) = row {
                let v = if updates.len() == 1 { updates[0] } else { updates[n * inner + k] };
                out[r * inner + k] = fold(op, out[r * inner + k], v);
            }
        }
    }
    out
}

const NUMBERS: [DType; 11] = [
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F64,
    DType::I8,
    DType::I16,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
];

#[test]
fn scatters_into_variables() {
    let rows: &[i64] = &[3, 0, 3, -1, 5, 3, 4, 0];
    for dtype in session().supported(NUMBERS) {
        for index in INDEX {
            for op in ["Update", "Add", "Sub", "Mul", "Min", "Max"] {
                if op == "Sub" && dtype_unsigned(dtype) {
                    continue; // wraps, which the reference in f64 does not
                }
                for (inner, scalar) in [(1usize, false), (3, false), (4, false), (3, true)] {
                    let mut session = session();
                    let dims = if inner == 1 { vec![5] } else { vec![5, inner] };
                    let base = numbers(dtype, &dims, 1);
                    let variable = session.variable(&base).unwrap();
                    let mut update_dims = vec![2, 4];
                    update_dims.extend_from_slice(&dims[1..]);
                    let updates = if scalar {
                        of_f64(dtype, &[], &[2.0])
                    } else {
                        numbers(dtype, &update_dims, 2)
                    };
                    let node = Node::new(&format!("ResourceScatter{op}"))
                        .attr("dtype", dtype)
                        .attr("Tindices", index);
                    let i = indices(index, &[2, 4], rows);
                    session
                        .run(&node, &[Input::Variable(variable), i.into(), updates.clone().into()])
                        .unwrap();
                    let valid: Vec<_> = rows.iter().map(|r| in_range(*r, 5)).collect();
                    let want = folded(op, &base.to_f64(), &valid, &updates.to_f64(), inner);
                    let got = session.variable_value(variable).unwrap();
                    assert_eq!(
                        got.to_f64(),
                        of_f64(dtype, &dims, &want).to_f64(),
                        "{op} {dtype} inner {inner} {scalar}"
                    );
                }
            }
        }
    }
    let mut session = session();
    let variable = session.variable(&numbers(DType::F32, &[4, 3], 0)).unwrap();
    let node =
        Node::new("ResourceScatterDiv").attr("dtype", DType::F32).attr("Tindices", DType::I32);
    let updates = HostTensor::f32(&[2, 3], &[2.0; 6]);
    let i = indices(DType::I32, &[2], &[1, 1]);
    session.run(&node, &[Input::Variable(variable), i.clone().into(), updates.into()]).unwrap();
    let base = numbers(DType::F32, &[4, 3], 0).to_f64();
    let want: Vec<f64> =
        base.iter().enumerate().map(|(e, v)| if e / 3 == 1 { v / 4.0 } else { *v }).collect();
    assert_eq!(session.variable_value(variable).unwrap().to_f64(), want);
    let bad = HostTensor::f32(&[2, 2], &[0.0; 4]);
    match session.run(&node, &[Input::Variable(variable), i.into(), bad.into()]) {
        Err(Error::InvalidArgument(m)) => {
            assert!(m.contains("got updates.shape [2,2], indices.shape [2]"), "{m}")
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(
        session.variable_value(variable).unwrap().to_f64(),
        want,
        "a failed update changes nothing"
    );
}

#[test]
fn scatters_by_nd_indices() {
    let cases: &[(&[usize], &[usize], &[i64])] = &[
        (&[6], &[4, 1], &[1, 5, 1, 6]),
        (&[4, 3], &[5, 1], &[1, 3, 1, 0, -2]),
        (&[4, 3], &[2, 3, 2], &[1, 2, 3, 0, 1, 2, 4, 0, 0, 0, 1, 2]),
        (&[2, 3, 4], &[3, 2], &[1, 2, 0, 0, 1, 2]),
        (&[3, 2], &[0, 1], &[]),
    ];
    for (dims, index_dims, values) in cases {
        let (depth, lead) = (index_dims[index_dims.len() - 1], &index_dims[..index_dims.len() - 1]);
        let inner: usize = dims[depth..].iter().product();
        let count: usize = lead.iter().product();
        let rows: Vec<Option<usize>> = (0..count)
            .map(|n| {
                (0..depth).try_fold(0, |at, d| {
                    Some(at * dims[d] + in_range(values[n * depth + d], dims[d])?)
                })
            })
            .collect();
        let update_dims = [lead, &dims[depth..]].concat();
        for dtype in session().supported(NUMBERS).into_iter().filter(|t| !dtype_unsigned(*t)) {
            for index in INDEX {
                let i = indices(index, index_dims, values);
                let updates = numbers(dtype, &update_dims, 2);
                let base = numbers(dtype, dims, 1);
                let typed = |op: &str| Node::new(op).attr("T", dtype).attr("Tindices", index);
                for op in ["Update", "Add", "Sub", "Min", "Max"] {
                    let want = of_f64(
                        dtype,
                        dims,
                        &folded(op, &base.to_f64(), &rows, &updates.to_f64(), inner),
                    );
                    let inputs = [base.clone(), i.clone(), updates.clone()];
                    check(&typed(&format!("TensorScatter{op}")), &inputs, &want);
                    let mut session = session();
                    let variable = session.variable(&base).unwrap();
                    let inputs =
                        [Input::Variable(variable), i.clone().into(), updates.clone().into()];
                    session.run(&typed(&format!("ResourceScatterNd{op}")), &inputs).unwrap();
                    assert_eq!(
                        session.variable_value(variable).unwrap().to_f64(),
                        want.to_f64(),
                        "{op} {dtype}"
                    );
                }
                let zeros = vec![0.0; base.to_f64().len()];
                let want =
                    of_f64(dtype, dims, &folded("Add", &zeros, &rows, &updates.to_f64(), inner));
                let shape: Vec<i64> = dims.iter().map(|n| *n as i64).collect();
                let shape = indices(index, &[shape.len()], &shape);
                check(&typed("ScatterNd"), &[i, updates, shape], &want);
            }
        }
    }
    let node = Node::new("TensorScatterAdd").attr("T", DType::F32).attr("Tindices", DType::I32);
    let (x, i) = (data(DType::F32, &[4, 3], 0), indices(DType::I32, &[2, 1], &[0, 1]));
    fails(
        &node,
        &[x.clone(), i.clone(), data(DType::F32, &[3, 3], 0)],
        "Dimensions [0,1) of indices[shape=[2,1]]",
    );
    fails(
        &node,
        &[x.clone(), i, data(DType::F32, &[2, 2], 0)],
        "Dimensions [1,2) of input[shape=[4,3]]",
    );
    let deep = indices(DType::I32, &[2, 3], &[0; 6]);
    fails(&node, &[x, deep, data(DType::F32, &[2], 0)], "must be at most the rank of the output");
}

#[test]
fn unsorted_segments() {
    let ids: &[i64] = &[2, 0, 2, -1, 6, 4, 2];
    let types = [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I32, DType::I64];
    for dtype in session().supported(types) {
        for index in INDEX {
            for (op, identity) in
                [("Sum", 0.0), ("Prod", 1.0), ("Max", f64::MIN), ("Min", f64::MAX)]
            {
                for inner in [1usize, 3, 4] {
                    let dims = if inner == 1 { vec![7] } else { vec![7, inner] };
                    let x = numbers(dtype, &dims, 3);
                    let valid: Vec<_> = ids.iter().map(|r| in_range(*r, 6)).collect();
                    let lowest = match (op, dtype) {
                        ("Sum" | "Prod", _) => identity,
                        (_, DType::F16) => identity.signum() * 65504.0,
                        (_, DType::BF16) => identity.signum() * f64::from(half::bf16::MAX),
                        (_, DType::F32) => identity.signum() * f64::from(f32::MAX),
                        ("Max", DType::I32) => f64::from(i32::MIN),
                        ("Min", DType::I32) => f64::from(i32::MAX),
                        ("Max", DType::I64) => i64::MIN as f64,
                        ("Min", DType::I64) => i64::MAX as f64,
                        _ => identity,
                    };
                    let want = folded(op, &vec![lowest; 6 * inner], &valid, &x.to_f64(), inner);
                    let mut out = dims.clone();
                    out[0] = 6;
                    let node = Node::new(&format!("UnsortedSegment{op}"))
                        .attr("T", dtype)
                        .attr("Tindices", index);
                    let inputs = [x, indices(index, &[7], ids), HostTensor::i32(&[], &[6])];
                    check(&node, &inputs, &of_f64(dtype, &out, &want));
                }
            }
        }
    }
    let node = Node::new("UnsortedSegmentSum").attr("T", DType::F32).attr("Tindices", DType::I32);
    let (x, n) = (data(DType::F32, &[3, 2], 0), HostTensor::i32(&[], &[2]));
    let i = indices(DType::I32, &[2], &[0, 1]);
    fails(&node, &[x, i, n], "data.shape = [3,2] does not start with segment_ids.shape = [2]");
}

/// Enough rows for them to be sorted by segment; small whole numbers, so that sums are exact in any
/// order.
#[test]
fn unsorted_segments_of_many_rows() {
    let n = 3000;
    let ids: Vec<i64> = (0..n).map(|i| (i * i + i / 7) % 23 - 2).collect();
    let valid: Vec<_> = ids.iter().map(|r| in_range(*r, 19)).collect();
    for (dtype, index) in
        [(DType::F32, DType::I32), (DType::F32, DType::I64), (DType::F64, DType::I32)]
    {
        if !session().runs(dtype) {
            continue;
        }
        for (op, identity) in [("Sum", 0.0), ("Max", -1.0), ("Min", 1.0)] {
            for inner in [1usize, 6, 8] {
                let lowest =
                    identity * if dtype == DType::F32 { f64::from(f32::MAX) } else { f64::MAX };
                let x: Vec<f64> =
                    (0..n as usize * inner).map(|i| ((i * 7 + i / 11) % 13) as f64 - 6.0).collect();
                let want = folded(op, &vec![lowest; 19 * inner], &valid, &x, inner);
                let node = Node::new(&format!("UnsortedSegment{op}"))
                    .attr("T", dtype)
                    .attr("Tindices", index);
                let (rows, n) = ([n as usize, inner], HostTensor::i32(&[], &[19]));
                let inputs = [of_f64(dtype, &rows, &x), indices(index, &rows[..1], &ids), n];
                check(&node, &inputs, &of_f64(dtype, &[19, inner], &want));
            }
        }
    }
}

/// More duplicates of one index than a loop may have iterations on lavapipe: blocks of indices
/// bound the chains, and sorted rows come in chunks.
#[test]
fn very_long_chains() {
    let n = 150_000;
    for dtype in [DType::F32, DType::I64] {
        let ones = of_f64(dtype, &[n], &vec![1.0; n]);
        let ids = HostTensor::i32(&[n], &vec![1; n]);
        let node = Node::new("UnsortedSegmentSum").attr("T", dtype).attr("Tindices", DType::I32);
        let got = run(&node, &[ones, ids, HostTensor::i32(&[], &[3])], 0).unwrap();
        assert_eq!(got.to_f64(), [0.0, n as f64, 0.0], "{dtype}");
    }
}

/// One-hot rows in windows, rows one of which exceeds a binding, and classes one of which does.
#[test]
fn one_hot_beyond_one_binding() {
    let mut session = bindings::session_of(2048);
    for dtype in session.supported([DType::U8, DType::F16, DType::F32, DType::C128]) {
        for (dims, axis, depth) in [
            (&[300][..], -1i64, 32usize),
            (&[9], -1, 1501),
            (&[601], 0, 7),
            (&[5, 90], 1, 21),
            (&[2, 2501], 1, 3),
        ] {
            let n: usize = dims.iter().product();
            let values: Vec<i64> = (0..n).map(|i| (i * 7 % (depth + 2)) as i64 - 1).collect();
            let (on, off) = (data(dtype, &[], 3), data(dtype, &[], 4));
            let a = if axis < 0 { dims.len() } else { axis as usize };
            let inner: usize = dims[a..].iter().product();
            let mut bytes = Vec::new();
            for i in 0..n * depth {
                let (outer, d, k) = (i / (depth * inner), i / inner % depth, i % inner);
                bytes.extend_from_slice(if values[outer * inner + k] == d as i64 {
                    &on.bytes
                } else {
                    &off.bytes
                });
            }
            for index in INDEX {
                let node =
                    Node::new("OneHot").attr("T", dtype).attr("TI", index).attr("axis", axis);
                let depth = HostTensor::i32(&[], &[depth as i32]);
                let inputs = [
                    indices(index, dims, &values).into(),
                    depth.into(),
                    on.clone().into(),
                    off.clone().into(),
                ];
                let got = session.run(&node, &inputs).unwrap().remove(0);
                assert!(got.bytes == bytes, "{dtype} {index} {dims:?} {axis}");
            }
        }
    }
}

/// A table larger than the largest binding is gathered and updated in windows.
#[test]
fn tables_beyond_one_binding() {
    let limit = 1 << 20;
    let mut session = Session::binding(limit as u64).unwrap();
    let rows = limit as usize / 64 + 1003;
    let table = data(DType::F32, &[rows, 16], 5);
    let wanted: Vec<i64> =
        [0, rows - 1, rows / 2, 7, rows, rows - 1002].iter().map(|r| *r as i64).collect();
    let variable = session.variable(&table).unwrap();
    let i = HostTensor::i64(&[6], &wanted);
    let node = Node::new("ResourceGather")
        .attr("dtype", DType::F32)
        .attr("Tindices", DType::I64)
        .attr("batch_dims", 0);
    let got = session.run(&node, &[Input::Variable(variable), i.clone().into()]).unwrap().remove(0);
    for (n, r) in wanted.iter().enumerate() {
        let want = row_or_zeros(&table, 16, in_range(*r, rows));
        assert!(got.bytes[n * 64..][..64] == want[..], "row {r}");
    }
    let updates = data(DType::F32, &[6, 16], 6);
    let node =
        Node::new("ResourceScatterUpdate").attr("dtype", DType::F32).attr("Tindices", DType::I64);
    session.run(&node, &[Input::Variable(variable), i.into(), updates.clone().into()]).unwrap();
    let got = session.variable_value(variable).unwrap();
    for (n, r) in wanted.iter().enumerate() {
        if let Some(r) = in_range(*r, rows) {
            assert!(got.bytes[r * 64..][..64] == updates.bytes[n * 64..][..64], "updated row {r}");
        }
    }
    assert!(got.bytes[64..7 * 64] == table.bytes[64..7 * 64], "other rows stay");
}
