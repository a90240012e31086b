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

#[test]
fn search_sorted() {
    for dtype in offered("LowerBound") {
        for (rows, n, m) in [(1, 4, 6), (3, 0, 2), (2, 1000, 33), (2, 5, 0)] {
            let mut sorted = values(dtype, rows * n, 11);
            sorted.chunks_mut(n.max(1)).for_each(|row| row.sort_by(f64::total_cmp));
            let wanted = values(dtype, rows * m, 12);
            for (op, upper) in [("LowerBound", false), ("UpperBound", true)] {
                let found: Vec<f64> = wanted
                    .iter()
                    .enumerate()
                    .map(|(i, v)| {
                        let row = &sorted[i / m * n..][..n];
                        row.partition_point(|s| if upper { s <= v } else { s < v }) as f64
                    })
                    .collect();
                for index in [DType::I32, DType::I64] {
                    let node = Node::new(op).attr("T", dtype).attr("out_type", index);
                    let inputs = [of_f64(dtype, &[rows, n], &sorted), of_f64(dtype, &[rows, m], &wanted)];
                    check(&node, &inputs, &[of_f64(index, &[rows, m], &found)]);
                }
            }
        }
    }
    let node = Node::new("LowerBound").attr("T", DType::F32).attr("out_type", DType::I32);
    let one = HostTensor::f32(&[1], &[0.0]);
    fails(&node, &[one.clone(), one], "Shape must be rank 2 but is rank 1 for `sorted_inputs` argument");
    let (a, b) = (HostTensor::f32(&[1, 1], &[0.0]), HostTensor::f32(&[2, 1], &[0.0, 1.0]));
    fails(&node, &[a, b], "Leading dim_size of both tensors must match.");
}

#[test]
fn bucketize() {
    for dtype in offered("Bucketize") {
        let v = [-5.0, 0.0, 1.0, 7.0, 16_777_216.0, 16_777_217.0, 20_000_001.0];
        let node = |b: &[f32]| Node::new("Bucketize").attr("T", dtype).attr("boundaries", b);
        // The last but one is 2^24 in float32.
        let near = if dtype == DType::F64 { 2 } else { 3 };
        let boundaries = [1.0, 7.5, 16_777_216.0 + if dtype == DType::F64 { 2.0 } else { 0.0 }, 2e7];
        let want = HostTensor::i32(&[7], &[0, 0, 1, 1, near, near, 4]);
        check(&node(&boundaries), &[of_f64(dtype, &[7], &v)], &[want]);
        check(&node(&[]), &[of_f64(dtype, &[7], &v)], &[HostTensor::i32(&[7], &[0; 7])]);
    }
    let node = Node::new("Bucketize").attr("T", DType::F32).attr("boundaries", &[3.0f32, 1.0][..]);
    fails(&node, &[HostTensor::f32(&[1], &[0.0])], "Expected sorted boundaries");
}

#[test]
fn bincount() {
    // rows and columns (0 rows: a vector), size
    for (rows, n, size) in [(0, 9, 4), (3, 50, 7), (0, 0, 3), (2, 4000, 1500), (0, 5000, 3), (2, 3, 0)] {
        let dims: Vec<usize> = if rows == 0 { vec![n] } else { vec![rows, n] };
        let count: usize = dims.iter().product();
        // Some beyond the last bin, one negative.
        let numbers: Vec<i64> = (0..count).map(|i| if i == 1 { -1 } else { number(i, 1, size + 2) as i64 }).collect();
        for dtype in [DType::F32, DType::I32] {
            let weights: Vec<f64> = (0..count)
                .map(|i| (number(i, 2, 17) as f64 - 5.0) / if dtype == DType::F32 { 4.0 } else { 1.0 })
                .collect();
            for (weighted, binary) in [(false, false), (true, false), (false, true), (true, true)] {
                let mut want = vec![0.0; rows.max(1) * size];
                for (i, v) in numbers.iter().enumerate().filter(|(_, v)| (0..size as i64).contains(*v)) {
                    let bin = &mut want[i / n * size + *v as usize];
                    *bin = if binary { 1.0 } else { *bin + if weighted { weights[i] } else { 1.0 } };
                }
                let out: Vec<usize> = if rows == 0 { vec![size] } else { vec![rows, size] };
                let want = [of_f64(dtype, &out, &want)];
                let weights = if weighted { of_f64(dtype, &dims, &weights) } else { of_f64(dtype, &[0], &[]) };
                let host_size = HostTensor::i32(&[], &[size as i32]);
                for index in [DType::I32, DType::I64] {
                    let v: Vec<f64> = numbers.iter().map(|v| *v as f64).collect();
                    let node =
                        Node::new("DenseBincount").attr("T", dtype).attr("Tidx", index).attr("binary_output", binary);
                    let host_size = of_f64(index, &[], &[size as f64]);
                    check(&node, &[of_f64(index, &dims, &v), host_size, weights.clone()], &want);
                }
                if rows == 0 && !binary {
                    let v: Vec<i32> = numbers.iter().map(|v| *v as i32).collect();
                    check(
                        &Node::new("Bincount").attr("T", dtype),
                        &[HostTensor::i32(&dims, &v), host_size, weights],
                        &want,
                    );
                }
            }
        }
    }
    let node = Node::new("Bincount").attr("T", DType::F32);
    let (x, none) = (HostTensor::i32(&[2], &[0, 1]), HostTensor::f32(&[0], &[]));
    fails(&node, &[x.clone(), HostTensor::i32(&[], &[-3]), none], "size (-3) must be non-negative");
    let weights = HostTensor::f32(&[1], &[1.0]);
    fails(&node, &[x, HostTensor::i32(&[], &[3]), weights], "Input indices and weights must have the same size.");
}

#[test]
fn histogram() {
    for dtype in offered("HistogramFixedWidth") {
        for (low, high, nbins, n) in [(0.0, 5.0, 5, 9), (-1.0, 1.0, 1, 300), (-3.7, 41.3, 37, 5000), (0.0, 0.7, 7, 70)]
        {
            let mut v: Vec<f64> =
                (0..n).map(|i| low - 1.0 + (high - low + 2.0) * number(i, 3, 1000) as f64 / 1000.0).collect();
            // Values on the edges of bins.
            v.extend((0..nbins).map(|i| low + (high - low) * f64::from(i) / f64::from(nbins)));
            v.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
            let (x, range) = (HostTensor::floats(dtype, &[v.len()], &v), HostTensor::floats(dtype, &[2], &[low, high]));
            let (low, high) = (range.to_f64()[0], range.to_f64()[1]);
            let narrow = |v: f64| if dtype == DType::F64 { v } else { f64::from(v as f32) };
            let step = narrow(high - low) / f64::from(nbins);
            let mut want = vec![0; nbins as usize];
            for v in x.to_f64().iter().filter(|v| !v.is_nan()) {
                let bin = (narrow(v.max(low) - low) / step).floor().min(f64::from(nbins) - 1.0);
                want[bin as usize] += 1;
            }
            let node = Node::new("HistogramFixedWidth").attr("T", dtype).attr("dtype", DType::I32);
            check(&node, &[x, range, HostTensor::i32(&[], &[nbins])], &[HostTensor::i32(&[nbins as usize], &want)]);
        }
    }
    let node = Node::new("HistogramFixedWidth").attr("T", DType::F32).attr("dtype", DType::I32);
    let (x, range) = (HostTensor::f32(&[1], &[0.0]), |a, b| HostTensor::f32(&[2], &[a, b]));
    let nbins = HostTensor::i32(&[], &[2]);
    fails(
        &node,
        &[x.clone(), range(5.0, 0.0), nbins],
        "value_range should satisfy value_range[0] < value_range[1], but got '[5, 0]'",
    );
    fails(&node, &[x, range(0.0, 1.0), HostTensor::i32(&[], &[0])], "nbins should be a positive number, but got '0'");
}

#[test]
fn in_top_k() {
    for index in [DType::I32, DType::I64] {
        let node = Node::new("InTopKV2").attr("T", index);
        for (rows, classes, k) in [(1, 1, 1), (5, 7, 3), (9, 1000, 50), (3, 4, 0), (3, 4, -2), (0, 4, 1), (3, 4, 9)] {
            let v = values(DType::F32, rows * classes, 21);
            // Some targets are out of range.
            let targets: Vec<f64> =
                (0..rows).map(|i| number(i, 4, classes + 1) as f64 - f64::from(i % 5 == 4)).collect();
            let hits: Vec<bool> = (0..rows)
                .map(|r| {
                    let row = &v[r * classes..][..classes];
                    let wanted = row.get(targets[r] as usize).filter(|_| targets[r] >= 0.0);
                    wanted.is_some_and(|w| (row.iter().filter(|o| *o > w).count() as i64) < k)
                })
                .collect();
            let inputs = [
                of_f64(DType::F32, &[rows, classes], &v),
                of_f64(index, &[rows], &targets),
                of_f64(index, &[], &[k as f64]),
            ];
            check(&node, &inputs, &[HostTensor::bool(&[rows], &hits)]);
        }
        let odd = [0.1, f32::NAN, 0.3, 0.2, f32::INFINITY, 0.1, -0.0, 0.0, -1.0];
        let inputs =
            [HostTensor::f32(&[3, 3], &odd), of_f64(index, &[3], &[0.0, 2.0, 0.0]), of_f64(index, &[], &[1.0])];
        check(&node, &inputs, &[HostTensor::bool(&[3], &[false, false, true])]);
    }
    let node = Node::new("InTopKV2").attr("T", DType::I32);
    let (x, one) = (HostTensor::f32(&[2, 1], &[0.0, 1.0]), HostTensor::i32(&[], &[1]));
    let targets = HostTensor::i32(&[1], &[0]);
    fails(&node, &[x, targets.clone(), one.clone()], "First dimension of predictions 2 must match length of targets 1");
    fails(&node, &[HostTensor::f32(&[1], &[0.0]), targets, one], "predictions must be 2-dimensional");
}

/// Greedy suppression, as its definition says.
fn suppressed(boxes: &[f32], scores: &[f32], limit: usize, overlap: f32, lowest: f32) -> Vec<i32> {
    let mut order: Vec<usize> = (0..scores.len()).filter(|i| scores[*i] > lowest).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]).then(a.cmp(b)));
    let corners = |i: usize| {
        let b = &boxes[4 * i..][..4];
        [b[0].min(b[2]), b[1].min(b[3]), b[0].max(b[2]), b[1].max(b[3])]
    };
    let iou = |i: usize, j: usize| {
        let (a, b) = (corners(i), corners(j));
        let area = |c: [f32; 4]| (c[2] - c[0]) * (c[3] - c[1]);
        if area(a) <= 0.0 || area(b) <= 0.0 {
            return 0.0;
        }
        let extent = |k: usize| (a[k + 2].min(b[k + 2]) - a[k].max(b[k])).max(0.0);
        let shared = extent(0) * extent(1);
        shared / (area(a) + area(b) - shared)
    };
    let mut picked: Vec<usize> = Vec::new();
    for i in order {
        if picked.len() < limit && picked.iter().all(|j| iou(*j, i) <= overlap) {
            picked.push(i);
        }
    }
    picked.into_iter().map(|i| i as i32).collect()
}

#[test]
fn non_max_suppression() {
    for (n, limit, overlap, lowest) in [
        (6, 3, 0.5, 0.0),
        (0, 3, 0.5, 0.0),
        (1000, 400, 0.3, 0.2),
        (300, 300, 0.0, 0.1),
        (257, 9, 1.0, 0.9),
        (5, 0, 0.5, 0.0),
    ] {
        // Corners on a grid of sixteenths: areas are exact. Some boxes are flipped, some empty.
        let at = |i: usize, seed| number(i, seed, 64) as f32 / 16.0;
        let boxes: Vec<f32> = (0..n)
            .flat_map(|i| {
                let (y, x) = (at(i, 1), at(i, 2));
                let (h, w) = (number(i, 3, 24) as f32 / 16.0, number(i, 4, 24) as f32 / 16.0);
                if i % 5 == 0 { [y + h, x, y, x + w] } else { [y, x, y + h, x + w] }
            })
            .collect();
        let scores: Vec<f32> = (0..n).map(|i| number(i, 5, 200) as f32 / 200.0).collect();
        let (b, s) = (HostTensor::f32(&[n, 4], &boxes), HostTensor::f32(&[n], &scores));
        let host = |v: f32| HostTensor::f32(&[], &[v]);
        let size = HostTensor::i32(&[], &[limit]);
        let limit = limit as usize;
        let node = |op| Node::new(op).attr("T", DType::F32);
        let list = |v: Vec<i32>| HostTensor::i32(&[v.len()], &v);
        let all = suppressed(&boxes, &scores, limit, overlap, f32::MIN);
        check(&node("NonMaxSuppressionV2"), &[b.clone(), s.clone(), size.clone(), host(overlap)], &[list(all)]);
        let inputs = [b, s, size, host(overlap), host(lowest)];
        let some = suppressed(&boxes, &scores, limit, overlap, lowest);
        check(&node("NonMaxSuppressionV3"), &inputs, &[list(some.clone())]);
        let valid = HostTensor::i32(&[], &[some.len() as i32]);
        let v4 = |pad: bool| node("NonMaxSuppressionV4").attr("pad_to_max_output_size", pad);
        check(&v4(false), &inputs, &[list(some.clone()), valid.clone()]);
        let mut padded = some;
        padded.resize(limit, 0);
        check(&v4(true), &inputs, &[list(padded), valid]);
    }
    let node = Node::new("NonMaxSuppressionV2").attr("T", DType::F32);
    let inputs = |overlap: f32, size: i32, columns: usize| {
        let boxes = HostTensor::f32(&[1, columns], &vec![0.0; columns]);
        [boxes, HostTensor::f32(&[1], &[1.0]), HostTensor::i32(&[], &[size]), HostTensor::f32(&[], &[overlap])]
    };
    fails(&node, &inputs(1.5, 1, 4), "iou_threshold must be in [0, 1]");
    fails(&node, &inputs(0.5, -1, 4), "output size must be non-negative");
    fails(&node, &inputs(0.5, 1, 3), "boxes must have 4 columns");
}

#[test]
fn ragged_fill_empty_rows() {
    for dtype in offered("RaggedFillEmptyRows") {
        for (n, rows, spread) in [(3, 5, 5), (0, 3, 1), (0, 0, 1), (9, 4, 2), (3000, 2500, 2500)] {
            let ids: Vec<i64> = (0..n).map(|i| number(i, 1, spread) as i64).collect();
            let v: Vec<f64> =
                values(dtype, n, 2).iter().map(|v| if dtype == DType::Bool { (v % 2.0).abs() } else { *v }).collect();
            let (mut out_ids, mut out, mut empty) = (Vec::new(), Vec::new(), Vec::new());
            let mut reverse = vec![0; n];
            for row in 0..rows as i64 {
                let mine: Vec<usize> = (0..n).filter(|i| ids[*i] == row).collect();
                empty.push(mine.is_empty());
                for i in &mine {
                    reverse[*i] = out.len() as i64;
                    out_ids.push(row);
                    out.push(v[*i]);
                }
                if mine.is_empty() {
                    out_ids.push(row);
                    out.push(1.0);
                }
            }
            let id_dims: &[usize] = if rows == 0 { &[0, 1] } else { &[out.len()] };
            let want = [
                HostTensor::i64(id_dims, &out_ids),
                of_f64(dtype, &[out.len()], &out),
                HostTensor::bool(&[rows], &empty),
                HostTensor::i64(&[n], &reverse),
            ];
            let nrows = HostTensor::i64(&[], &[rows as i64]);
            let inputs = [HostTensor::i64(&[n], &ids), of_f64(dtype, &[n], &v), nrows, of_f64(dtype, &[], &[1.0])];
            check(&Node::new("RaggedFillEmptyRows").attr("T", dtype), &inputs, &want);
        }
    }
    let node = Node::new("RaggedFillEmptyRows").attr("T", DType::F32);
    let inputs = |ids: &[i64], n: usize, rows: i64| {
        let values = HostTensor::f32(&[n], &vec![0.0; n]);
        [HostTensor::i64(&[ids.len()], ids), values, HostTensor::i64(&[], &[rows]), HostTensor::f32(&[], &[0.0])]
    };
    fails(&node, &inputs(&[1, 1, 7], 3, 5), "indices(2, 0) is invalid: 7 >= 5");
    fails(&node, &inputs(&[1, -1, 7], 3, 5), "indices(1, 0) is invalid: -1 >= 5");
    fails(
        &node,
        &inputs(&[1], 2, 5),
        "The length of `values` (2) must match the first dimension of `value_rowids` (1).",
    );
    fails(&node, &inputs(&[0], 1, 0), "Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = 1");
}

#[test]
fn ragged_fill_empty_rows_grad() {
    for dtype in offered("RaggedFillEmptyRowsGrad") {
        for (n, m) in [(3, 5), (0, 2), (0, 0), (50, 400)] {
            let map: Vec<i64> = (0..n).map(|i| (i * m / n) as i64).collect();
            let v: Vec<f64> = (0..m).map(|i| number(i, 1, 2) as f64).collect();
            let picked: Vec<f64> = map.iter().map(|i| v[*i as usize]).collect();
            let rest = (0..m).filter(|i| !map.contains(&(*i as i64))).map(|i| v[i]).sum::<f64>() + 0.0;
            let rest = if dtype.size() == 1 { (rest as i64 as u8) as f64 } else { rest };
            let rest = if dtype == DType::I8 { f64::from(rest as u8 as i8) } else { rest };
            let inputs = [HostTensor::i64(&[n], &map), of_f64(dtype, &[m], &v)];
            let want = [of_f64(dtype, &[n], &picked), of_f64(dtype, &[], &[rest])];
            check(&Node::new("RaggedFillEmptyRowsGrad").attr("T", dtype), &inputs, &want);
        }
    }
}
