//! Ops that sort, select, count and search, against plain Rust: every type, ties, NaN, rows beyond one workgroup, and the errors.

use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor};

fn session() -> Session {
    Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers")
}

fn run(node: &Node, inputs: &[HostTensor], misalign: usize) -> Result<Vec<HostTensor>, Error> {
    let mut session = session();
    session.misalign = misalign;
    let inputs: Vec<Input> = inputs.iter().cloned().map(Input::from).collect();
    session.run(node, &inputs)
}

fn check(node: &Node, inputs: &[HostTensor], want: &[HostTensor]) {
    for misalign in [0, 1] {
        let got = run(node, inputs, misalign).unwrap_or_else(|e| panic!("{node:?}: {e}"));
        assert_eq!(got.len(), want.len());
        for (i, (got, want)) in got.iter().zip(want).enumerate() {
            assert_eq!((&got.dims, got.dtype), (&want.dims, want.dtype), "{node:?} output {i}");
            assert!(
                got.bytes == want.bytes,
                "{node:?} output {i} misaligned by {misalign}: {:?} should be {:?}",
                &got.to_f64()[..got.len().min(40)],
                &want.to_f64()[..want.len().min(40)]
            );
        }
    }
}

trait Len {
    fn len(&self) -> usize;
}

impl Len for HostTensor {
    fn len(&self) -> usize {
        self.dims.iter().product()
    }
}

fn fails(node: &Node, inputs: &[HostTensor], message: &str) {
    match run(node, inputs, 0) {
        Err(Error::InvalidArgument(m)) => assert!(m.contains(message), "{m:?} should say {message:?}"),
        other => panic!("{node:?} should fail with {message:?}, gave {other:?}"),
    }
}

/// A number that looks random, below `n`.
fn number(i: usize, seed: usize, n: usize) -> usize {
    let mut v = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (seed as u64).wrapping_mul(0xd1b5_4a32_d192_ed03);
    v ^= v >> 29;
    v = v.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((v >> 33) as usize) % n
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
        DType::U8 | DType::Bool => ints!(u8),
        DType::U16 => ints!(u16),
        DType::U32 => ints!(u32),
        DType::U64 => ints!(u64),
        DType::C64 => HostTensor::of(dtype, dims, &v.iter().map(|v| [*v as f32, 0.0]).collect::<Vec<_>>()),
        DType::C128 => HostTensor::of(dtype, dims, &v.iter().map(|v| [*v, 0.0]).collect::<Vec<_>>()),
        _ => HostTensor::floats(dtype, dims, v),
    }
}

fn offered(op: &str) -> Vec<DType> {
    session().registry().rows().iter().filter(|r| r.op == op).map(|r| r.types[0].1).collect()
}

/// Values with many ties over the whole range of small types, negative ones where the type has them.
fn values(dtype: DType, n: usize, seed: usize) -> Vec<f64> {
    let signed = dtype.is_float() || dtype.is_signed_integer();
    let scale = if dtype.is_float() { 0.5 } else { 1.0 };
    let far = if dtype.size() == 8 { 4_294_967_296.0 } else { 1.0 };
    (0..n)
        .map(|i| {
            let v = number(i, seed, if dtype.size() == 1 { 101 } else { 201 }) as f64
                * scale
                * if i % 3 == 0 { far } else { 1.0 };
            if signed && number(i, seed + 1, 2) == 0 { -v / 2.0 } else { v }
        })
        .map(|v| if dtype.is_float() { v } else { v.trunc() })
        .collect()
}

#[test]
fn nonzero() {
    let shapes: &[&[usize]] = &[&[1], &[7], &[3, 5], &[0, 4], &[2, 3, 2, 2], &[1024], &[1025], &[700, 33]];
    for dtype in offered("Where") {
        for dims in shapes {
            let n: usize = dims.iter().product();
            for density in [0, 1, 3] {
                let v: Vec<f64> =
                    (0..n).map(|i| if number(i, density, 4) < density { (i % 100 + 1) as f64 } else { 0.0 }).collect();
                let mut want = Vec::new();
                for (i, _) in v.iter().enumerate().filter(|(_, v)| **v != 0.0) {
                    let mut rest = i;
                    let mut row: Vec<i64> = dims
                        .iter()
                        .rev()
                        .map(|d| {
                            let c = rest % d;
                            rest /= d;
                            c as i64
                        })
                        .collect();
                    row.reverse();
                    want.extend(row);
                }
                let v: Vec<f64> = if dtype == DType::Bool { v.iter().map(|v| v.min(1.0)).collect() } else { v };
                let want = HostTensor::i64(&[want.len() / dims.len(), dims.len()], &want);
                check(&Node::new("Where").attr("T", dtype), &[of_f64(dtype, dims, &v)], &[want]);
            }
        }
    }
    let node = Node::new("Where").attr("T", DType::F32);
    check(&node, &[HostTensor::f32(&[3], &[f32::NAN, -0.0, 1.0])], &[HostTensor::i64(&[2, 1], &[0, 2])]);
    fails(&node, &[HostTensor::f32(&[], &[1.0])], "WhereOp : Unhandled input dimensions: 0");
}

/// The first k of each row: greater values first, lower positions among equals.
fn top(v: &[f64], n: usize, k: usize, sign: f64) -> Vec<usize> {
    let mut out = Vec::new();
    for row in v.chunks(n.max(1)) {
        let mut order: Vec<usize> = (0..n).collect();
        // Adding zero makes -0 equal to 0.
        order.sort_by(|a, b| (sign * row[*b] + 0.0).total_cmp(&(sign * row[*a] + 0.0)).then(a.cmp(b)));
        out.extend(&order[..k]);
    }
    out
}

#[test]
fn top_k() {
    // rows' dims, k: one workgroup for several rows, a row for each, a tournament, the radix sort
    let cases: &[(&[usize], usize)] = &[
        (&[1], 1),
        (&[3, 5], 2),
        (&[2, 3, 10], 10),
        (&[3, 1000], 7),
        (&[2, 5000], 33),
        (&[2, 3001], 1500),
        (&[4, 0], 0),
    ];
    for dtype in offered("TopKV2") {
        for (dims, k) in cases {
            let n = dims[dims.len() - 1];
            let v = values(dtype, dims.iter().product(), 3);
            let order = top(&v, n, *k, 1.0);
            let out = [&dims[..dims.len() - 1], &[*k]].concat();
            let picked: Vec<f64> = order.iter().enumerate().map(|(i, j)| v[i / k.max(&1) * n + j]).collect();
            let positions: Vec<i32> = order.iter().map(|j| *j as i32).collect();
            let want = [of_f64(dtype, &out, &picked), HostTensor::i32(&out, &positions)];
            let node = Node::new("TopKV2").attr("T", dtype).attr("index_type", DType::I32);
            check(&node, &[of_f64(dtype, dims, &v), HostTensor::i32(&[], &[*k as i32])], &want);
            if *dims == [3, 5] {
                check(&Node::new("TopK").attr("T", dtype).attr("k", 2), &[of_f64(dtype, dims, &v)], &want);
            }
        }
    }
    let node = Node::new("TopKV2").attr("T", DType::F32).attr("index_type", DType::I32);
    let x = HostTensor::f32(&[6], &[0.0, f32::NEG_INFINITY, -0.0, f32::INFINITY, f32::NAN, 0.0]);
    let got = run(&node, &[x.clone(), HostTensor::i32(&[], &[6])], 0).expect("runs");
    assert_eq!(got[1].values::<i32>(), [4, 3, 0, 2, 5, 1]);
    assert_eq!(got[0].values::<f32>()[1..].iter().map(|v| v.to_bits()).collect::<Vec<_>>()[2], (-0.0f32).to_bits());
    fails(&node, &[x.clone(), HostTensor::i32(&[], &[7])], "input must have at least k columns. Had 6, needed 7");
    fails(&node, &[x.clone(), HostTensor::i32(&[], &[-1])], "Need k >= 0, got -1");
    fails(&node, &[x, HostTensor::i32(&[1], &[1])], "k must be scalar, got shape [1]");
    fails(&node, &[HostTensor::f32(&[], &[1.0]), HostTensor::i32(&[], &[0])], "input must be >= 1-D, got shape []");
}

#[test]
fn approx_top_k() {
    let v = values(DType::F32, 2 * 300, 5);
    for largest in [true, false] {
        let order = top(&v, 300, 4, if largest { 1.0 } else { -1.0 });
        let picked: Vec<f64> = order.iter().enumerate().map(|(i, j)| v[i / 4 * 300 + j]).collect();
        let positions: Vec<i32> = order.iter().map(|j| *j as i32).collect();
        let node = Node::new("ApproxTopK").attr("T", DType::F32).attr("k", 4).attr("is_max_k", largest);
        check(
            &node.attr("reduction_dimension", -1),
            &[of_f64(DType::F32, &[2, 300], &v)],
            &[of_f64(DType::F32, &[2, 4], &picked), HostTensor::i32(&[2, 4], &positions)],
        );
    }
}

#[test]
fn unique() {
    for dtype in offered("UniqueWithCounts") {
        for n in [0, 1, 9, 300, 3000] {
            for index in [DType::I32, DType::I64] {
                let modulus = if dtype == DType::Bool { 2 } else { 70 };
                let v: Vec<f64> = values(dtype, n, n).iter().map(|v| v % f64::from(modulus)).map(f64::abs).collect();
                let (mut y, mut idx, mut counts): (Vec<f64>, Vec<i64>, Vec<i64>) = Default::default();
                for v in &v {
                    let at = y.iter().position(|u| u == v).unwrap_or(y.len());
                    if at == y.len() {
                        y.push(*v);
                        counts.push(0);
                    }
                    counts[at] += 1;
                    idx.push(at as i64);
                }
                let as_index = |v: &[i64]| of_f64(index, &[v.len()], &v.iter().map(|v| *v as f64).collect::<Vec<_>>());
                let want = [of_f64(dtype, &[y.len()], &y), as_index(&idx), as_index(&counts)];
                let node = |op| Node::new(op).attr("T", dtype).attr("out_idx", index);
                check(&node("UniqueWithCounts"), &[of_f64(dtype, &[n], &v)], &want);
                check(&node("Unique"), &[of_f64(dtype, &[n], &v)], &want[..2]);
            }
        }
    }
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        let node = Node::new("Unique").attr("T", dtype).attr("out_idx", DType::I32);
        let v = [f64::NAN, 0.0, -0.0, -f64::NAN, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY];
        let got = run(&node, &[HostTensor::floats(dtype, &[8], &v)], 0).expect("runs");
        assert_eq!(got[1].values::<i32>(), [0, 1, 1, 2, 3, 4, 5, 4], "{dtype}");
    }
    let node = Node::new("Unique").attr("T", DType::F32).attr("out_idx", DType::I32);
    fails(&node, &[HostTensor::f32(&[1, 1], &[1.0])], "unique expects a 1D vector.");
}

#[test]
fn dynamic_partition() {
    let cases: &[(&[usize], usize, usize)] =
        &[(&[6], 1, 3), (&[2, 3, 2], 2, 2), (&[4000, 3], 1, 40), (&[0, 2], 1, 2), (&[], 0, 2)];
    for dtype in offered("DynamicPartition") {
        for (dims, rank, n) in cases {
            let (rows, inner): (usize, usize) = (dims[..*rank].iter().product(), dims[*rank..].iter().product());
            let v = values(dtype, rows * inner, 7);
            let partitions: Vec<i32> = (0..rows).map(|i| number(i, 9, *n) as i32).collect();
            let want: Vec<HostTensor> = (0..*n as i32)
                .map(|k| {
                    let picked: Vec<f64> = (0..rows)
                        .filter(|r| partitions[*r] == k)
                        .flat_map(|r| v[r * inner..][..inner].to_vec())
                        .collect();
                    let count = partitions.iter().filter(|p| **p == k).count();
                    of_f64(dtype, &[&[count], &dims[*rank..]].concat(), &picked)
                })
                .collect();
            let node = Node::new("DynamicPartition").attr("T", dtype).attr("num_partitions", *n as i64);
            check(&node, &[of_f64(dtype, dims, &v), HostTensor::i32(&dims[..*rank], &partitions)], &want);
        }
    }
    let node = Node::new("DynamicPartition").attr("T", DType::F32).attr("num_partitions", 2);
    let x = HostTensor::f32(&[1, 3], &[1.0, 2.0, 3.0]);
    fails(&node, &[x.clone(), HostTensor::i32(&[1, 3], &[0, -1, 2])], "partitions[0,1] = -1 is not in [0, 2)");
    fails(
        &node,
        &[x, HostTensor::i32(&[3], &[0, 0, 0])],
        "data.shape must start with partitions.shape, got data.shape = [1,3]",
    );
}
