//! Positions, largest elements, and distinct ones.

use super::*;

#[test]
fn nonzero() {
    let shapes: &[&[usize]] =
        &[&[1], &[7], &[3, 5], &[0, 4], &[2, 3, 2, 2], &[1024], &[2049], &[700, 33]];
    for dtype in offered("Where") {
        for dims in shapes {
            let n: usize = dims.iter().product();
            for density in [0, 1, 3] {
                let v: Vec<f64> =
                    (0..n)
                        .map(|i| {
                            if number(i, density, 4) < density { (i % 100 + 1) as f64 } else { 0.0 }
                        })
                        .collect();
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
                let v: Vec<f64> =
                    if dtype == DType::Bool { v.iter().map(|v| v.min(1.0)).collect() } else { v };
                let want = HostTensor::i64(&[want.len() / dims.len(), dims.len()], &want);
                check(&Node::new("Where").attr("T", dtype), &[of_f64(dtype, dims, &v)], &[want]);
            }
        }
    }
    let node = Node::new("Where").attr("T", DType::F32);
    check(
        &node,
        &[HostTensor::f32(&[3], &[f32::NAN, -0.0, 1.0])],
        &[HostTensor::i64(&[2, 1], &[0, 2])],
    );
    fails(&node, &[HostTensor::f32(&[], &[1.0])], "WhereOp : Unhandled input dimensions: 0");
}

/// The first k of each row: greater values first, lower positions among equals.
fn top(v: &[f64], n: usize, k: usize, sign: f64) -> Vec<usize> {
    let mut out = Vec::new();
    for row in v.chunks(n.max(1)) {
        let mut order: Vec<usize> = (0..n).collect();
        // Adding zero makes -0 equal to 0.
        order.sort_by(|a, b| {
            (sign * row[*b] + 0.0).total_cmp(&(sign * row[*a] + 0.0)).then(a.cmp(b))
        });
        out.extend(&order[..k]);
    }
    out
}

#[test]
fn top_k() {
    // rows' dims, k: a workgroup for each row, with fewer elements than invocations too, rounds of
    // selections in every workgroup size, of sorts, the radix sort, and many rows
    let cases: &[(&[usize], usize)] = &[
        (&[1], 1),
        (&[3, 5], 2),
        (&[2, 3, 10], 10),
        (&[3, 1000], 7),
        (&[2, 5000], 16),
        (&[2, 5000], 33),
        (&[1, 30_000], 128),
        (&[3, 300], 129),
        (&[2, 5000], 200),
        (&[2, 3001], 1500),
        (&[4, 0], 0),
        (&[33, 150], 150),
        (&[4, 9, 1024], 700),
    ];
    for dtype in offered("TopKV2") {
        for (dims, k) in cases {
            let n = dims[dims.len() - 1];
            let v = values(dtype, dims.iter().product(), 3);
            let order = top(&v, n, *k, 1.0);
            let out = [&dims[..dims.len() - 1], &[*k]].concat();
            let picked: Vec<f64> =
                order.iter().enumerate().map(|(i, j)| v[i / k.max(&1) * n + j]).collect();
            let positions: Vec<i32> = order.iter().map(|j| *j as i32).collect();
            let want = [of_f64(dtype, &out, &picked), HostTensor::i32(&out, &positions)];
            let node = Node::new("TopKV2").attr("T", dtype).attr("index_type", DType::I32);
            check(&node, &[of_f64(dtype, dims, &v), HostTensor::i32(&[], &[*k as i32])], &want);
            if *dims == [3, 5] {
                check(
                    &Node::new("TopK").attr("T", dtype).attr("k", 2),
                    &[of_f64(dtype, dims, &v)],
                    &want,
                );
            }
        }
    }
    let node = Node::new("TopKV2").attr("T", DType::F32).attr("index_type", DType::I32);
    let x = HostTensor::f32(&[6], &[0.0, f32::NEG_INFINITY, -0.0, f32::INFINITY, f32::NAN, 0.0]);
    let got = run(&node, &[x.clone(), HostTensor::i32(&[], &[6])], 0).expect("runs");
    assert_eq!(got[1].values::<i32>(), [4, 3, 0, 2, 5, 1]);
    assert_eq!(
        got[0].values::<f32>()[1..].iter().map(|v| v.to_bits()).collect::<Vec<_>>()[2],
        (-0.0f32).to_bits()
    );
    fails(
        &node,
        &[x.clone(), HostTensor::i32(&[], &[7])],
        "input must have at least k columns. Had 6, needed 7",
    );
    fails(&node, &[x.clone(), HostTensor::i32(&[], &[-1])], "Need k >= 0, got -1");
    fails(&node, &[x, HostTensor::i32(&[1], &[1])], "k must be scalar, got shape [1]");
    fails(
        &node,
        &[HostTensor::f32(&[], &[1.0]), HostTensor::i32(&[], &[0])],
        "input must be >= 1-D, got shape []",
    );
}

/// Software adapters sort many rows by a program of their own.
#[test]
fn top_k_of_many_rows() {
    let node = Node::new("TopKV2").attr("T", DType::F32).attr("index_type", DType::I32);
    // Longer than a tournament's segment, a length that no run divides, and the largest length.
    for (rows, n, k) in [(40, 2100, 300), (32, 8192, 8192), (2500, 131, 131)] {
        let v = values(DType::F32, rows * n, 9);
        let positions: Vec<i32> = top(&v, n, k, 1.0).iter().map(|j| *j as i32).collect();
        let picked: Vec<f64> =
            positions.iter().enumerate().map(|(i, j)| v[i / k * n + *j as usize]).collect();
        let want =
            [of_f64(DType::F32, &[rows, k], &picked), HostTensor::i32(&[rows, k], &positions)];
        check(
            &node,
            &[of_f64(DType::F32, &[rows, n], &v), HostTensor::i32(&[], &[k as i32])],
            &want,
        );
    }
    // NaN, infinities, both zeros: the order of each row of six is as in a row of its own.
    let six = [0.0, f32::NEG_INFINITY, -0.0, f32::INFINITY, f32::NAN, 0.0];
    let (rows, n) = (35, 150);
    let x: Vec<f32> = six.iter().copied().cycle().take(rows * n).collect();
    let ranked: [&[usize]; 4] = [&[4], &[3], &[0, 2, 5], &[1]];
    let want: Vec<i32> = ranked
        .iter()
        .flat_map(|same| (0..n).filter(|j| same.contains(&(j % 6))).map(|j| j as i32))
        .collect();
    let got = run(&node, &[HostTensor::f32(&[rows, n], &x), HostTensor::i32(&[], &[n as i32])], 0)
        .expect("runs");
    assert!(got[1].values::<i32>().chunks(n).all(|row| row == want));
    let bits = |v: &[f32]| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    let picked: Vec<f32> = want.iter().map(|j| x[*j as usize]).collect();
    assert!(got[0].values::<f32>().chunks(n).all(|row| bits(row)[25..] == bits(&picked)[25..]));
}

/// Rows in which long stretches are equal, ascending or descending, so that the elements found
/// first come from few of a workgroup's invocations.
#[test]
fn top_k_of_crowded_rows() {
    let n = 9000;
    let rows: [fn(usize) -> f32; 5] = [
        |_| 1.0,
        |i| i as f32,
        |i| -(i as f32),
        |i| if i % 32 == 5 { i as f32 } else { -1.0 },
        |i| if i % 64 < 2 { 2.0 } else { f32::NEG_INFINITY },
    ];
    let v: Vec<f32> = rows.iter().flat_map(|row| (0..n).map(row)).collect();
    let exact: Vec<f64> = v.iter().copied().map(f64::from).collect();
    for k in [1, 5, 16, 31, 60, 128] {
        let order = top(&exact, n, k, 1.0);
        let picked: Vec<f32> = order.iter().enumerate().map(|(i, j)| v[i / k * n + j]).collect();
        let positions: Vec<i32> = order.iter().map(|j| *j as i32).collect();
        let node = Node::new("TopKV2").attr("T", DType::F32).attr("index_type", DType::I32);
        check(
            &node,
            &[HostTensor::f32(&[5, n], &v), HostTensor::i32(&[], &[k as i32])],
            &[HostTensor::f32(&[5, k], &picked), HostTensor::i32(&[5, k], &positions)],
        );
    }
}

#[test]
fn approx_top_k() {
    let v = values(DType::F32, 2 * 300, 5);
    for largest in [true, false] {
        let order = top(&v, 300, 4, if largest { 1.0 } else { -1.0 });
        let picked: Vec<f64> = order.iter().enumerate().map(|(i, j)| v[i / 4 * 300 + j]).collect();
        let positions: Vec<i32> = order.iter().map(|j| *j as i32).collect();
        let node =
            Node::new("ApproxTopK").attr("T", DType::F32).attr("k", 4).attr("is_max_k", largest);
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
                let v: Vec<f64> = values(dtype, n, n)
                    .iter()
                    .map(|v| v % f64::from(modulus))
                    .map(f64::abs)
                    .collect();
                let (mut y, mut idx, mut counts): (Vec<f64>, Vec<i64>, Vec<i64>) =
                    Default::default();
                for v in &v {
                    let at = y.iter().position(|u| u == v).unwrap_or(y.len());
                    if at == y.len() {
                        y.push(*v);
                        counts.push(0);
                    }
                    counts[at] += 1;
                    idx.push(at as i64);
                }
                let as_index = |v: &[i64]| {
                    of_f64(index, &[v.len()], &v.iter().map(|v| *v as f64).collect::<Vec<_>>())
                };
                let want = [of_f64(dtype, &[y.len()], &y), as_index(&idx), as_index(&counts)];
                let node = |op| Node::new(op).attr("T", dtype).attr("out_idx", index);
                check(&node("UniqueWithCounts"), &[of_f64(dtype, &[n], &v)], &want);
                check(&node("Unique"), &[of_f64(dtype, &[n], &v)], &want[..2]);
            }
        }
    }
    for dtype in session().supported([DType::F32, DType::F64, DType::F16, DType::BF16]) {
        let node = Node::new("Unique").attr("T", dtype).attr("out_idx", DType::I32);
        let v = [
            f64::NAN,
            0.0,
            -0.0,
            -f64::NAN,
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::INFINITY,
        ];
        let got = run(&node, &[HostTensor::floats(dtype, &[8], &v)], 0).expect("runs");
        assert_eq!(got[1].values::<i32>(), [0, 1, 1, 2, 3, 4, 5, 4], "{dtype}");
    }
    let node = Node::new("Unique").attr("T", DType::F32).attr("out_idx", DType::I32);
    fails(&node, &[HostTensor::f32(&[1, 1], &[1.0])], "unique expects a 1D vector.");
}

/// Values that a hash table of 4,096 slots would all put into one slot: more than it probes.
#[test]
fn unique_of_values_that_crowd() {
    let hash = |key: u32| {
        let h = (key ^ (key >> 16)).wrapping_mul(0x85eb_ca6b);
        let h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
        h ^ (h >> 16)
    };
    let crowd: Vec<u32> = (0..u32::MAX).filter(|v| hash(*v) & 4095 < 8).take(1000).collect();
    let v: Vec<u32> = (0..2000).map(|i| crowd[(i * 7) % 1000]).collect();
    let want = [
        HostTensor::of(DType::U32, &[1000], &v[..1000]),
        HostTensor::i32(&[2000], &(0..2000).map(|i| i % 1000).collect::<Vec<i32>>()),
        HostTensor::i32(&[1000], &[2; 1000]),
    ];
    let node = Node::new("UniqueWithCounts").attr("T", DType::U32).attr("out_idx", DType::I32);
    check(&node, &[HostTensor::of(DType::U32, &[2000], &v)], &want);
}

#[test]
fn in_top_k() {
    for index in [DType::I32, DType::I64] {
        let node = Node::new("InTopKV2").attr("T", index);
        for (rows, classes, k) in
            [(1, 1, 1), (5, 7, 3), (9, 1000, 50), (3, 4, 0), (3, 4, -2), (0, 4, 1), (3, 4, 9)]
        {
            let v = values(DType::F32, rows * classes, 21);
            // Some targets are out of range.
            let targets: Vec<f64> = (0..rows)
                .map(|i| number(i, 4, classes + 1) as f64 - f64::from(i % 5 == 4))
                .collect();
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
        let inputs = [
            HostTensor::f32(&[3, 3], &odd),
            of_f64(index, &[3], &[0.0, 2.0, 0.0]),
            of_f64(index, &[], &[1.0]),
        ];
        check(&node, &inputs, &[HostTensor::bool(&[3], &[false, false, true])]);
    }
    let node = Node::new("InTopKV2").attr("T", DType::I32);
    let (x, one) = (HostTensor::f32(&[2, 1], &[0.0, 1.0]), HostTensor::i32(&[], &[1]));
    let targets = HostTensor::i32(&[1], &[0]);
    fails(
        &node,
        &[x, targets.clone(), one.clone()],
        "First dimension of predictions 2 must match length of targets 1",
    );
    fails(
        &node,
        &[HostTensor::f32(&[1], &[0.0]), targets, one],
        "predictions must be 2-dimensional",
    );
}
