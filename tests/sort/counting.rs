//! Partitions, searches, bins, ragged rows.

use super::*;

#[test]
fn dynamic_partition() {
    let cases: &[(&[usize], usize, usize)] =
        &[(&[6], 1, 3), (&[2, 3, 2], 2, 2), (&[4000, 3], 1, 40), (&[0, 2], 1, 2), (&[], 0, 2)];
    for dtype in offered("DynamicPartition") {
        for (dims, rank, n) in cases {
            let (rows, inner): (usize, usize) =
                (dims[..*rank].iter().product(), dims[*rank..].iter().product());
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
            let node =
                Node::new("DynamicPartition").attr("T", dtype).attr("num_partitions", *n as i64);
            check(
                &node,
                &[of_f64(dtype, dims, &v), HostTensor::i32(&dims[..*rank], &partitions)],
                &want,
            );
        }
    }
    let node = Node::new("DynamicPartition").attr("T", DType::F32).attr("num_partitions", 2);
    let x = HostTensor::f32(&[1, 3], &[1.0, 2.0, 3.0]);
    fails(
        &node,
        &[x.clone(), HostTensor::i32(&[1, 3], &[0, -1, 2])],
        "partitions[0,1] = -1 is not in [0, 2)",
    );
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
                    let inputs =
                        [of_f64(dtype, &[rows, n], &sorted), of_f64(dtype, &[rows, m], &wanted)];
                    check(&node, &inputs, &[of_f64(index, &[rows, m], &found)]);
                }
            }
        }
    }
    let node = Node::new("LowerBound").attr("T", DType::F32).attr("out_type", DType::I32);
    let one = HostTensor::f32(&[1], &[0.0]);
    fails(
        &node,
        &[one.clone(), one],
        "Shape must be rank 2 but is rank 1 for `sorted_inputs` argument",
    );
    let (a, b) = (HostTensor::f32(&[1, 1], &[0.0]), HostTensor::f32(&[2, 1], &[0.0, 1.0]));
    fails(&node, &[a, b], "Leading dim_size of both tensors must match.");
}

#[test]
fn bucketize() {
    for dtype in offered("Bucketize") {
        let v = [-5.0, 0.0, 1.0, 7.0, 16_777_216.0, 16_777_217.0, 20_000_001.0];
        let node = |b: &[f32]| Node::new("Bucketize").attr("T", dtype).attr("boundaries", b);
        // The last boundary but one is 2^24 in float32.
        let near = if dtype == DType::F64 { 2 } else { 3 };
        let boundaries =
            [1.0, 7.5, 16_777_216.0 + if dtype == DType::F64 { 2.0 } else { 0.0 }, 2e7];
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
    for (rows, n, size) in
        [(0, 9, 4), (3, 50, 7), (0, 0, 3), (2, 4000, 1500), (0, 5000, 3), (2, 3, 0)]
    {
        let dims: Vec<usize> = if rows == 0 { vec![n] } else { vec![rows, n] };
        let count: usize = dims.iter().product();
        // Some beyond the last bin, one negative.
        let numbers: Vec<i64> =
            (0..count).map(|i| if i == 1 { -1 } else { number(i, 1, size + 2) as i64 }).collect();
        for dtype in [DType::F32, DType::I32] {
            let weights: Vec<f64> = (0..count)
                .map(|i| {
                    (number(i, 2, 17) as f64 - 5.0) / if dtype == DType::F32 { 4.0 } else { 1.0 }
                })
                .collect();
            for (weighted, binary) in [(false, false), (true, false), (false, true), (true, true)] {
                let mut want = vec![0.0; rows.max(1) * size];
                for (i, v) in
                    numbers.iter().enumerate().filter(|(_, v)| (0..size as i64).contains(*v))
                {
                    let bin = &mut want[i / n * size + *v as usize];
                    *bin =
                        if binary { 1.0 } else { *bin + if weighted { weights[i] } else { 1.0 } };
                }
                let out: Vec<usize> = if rows == 0 { vec![size] } else { vec![rows, size] };
                let want = [of_f64(dtype, &out, &want)];
                let weights = if weighted {
                    of_f64(dtype, &dims, &weights)
                } else {
                    of_f64(dtype, &[0], &[])
                };
                let host_size = HostTensor::i32(&[], &[size as i32]);
                for index in [DType::I32, DType::I64] {
                    let v: Vec<f64> = numbers.iter().map(|v| *v as f64).collect();
                    let node = Node::new("DenseBincount")
                        .attr("T", dtype)
                        .attr("Tidx", index)
                        .attr("binary_output", binary);
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
    fails(
        &node,
        &[x, HostTensor::i32(&[], &[3]), weights],
        "Input indices and weights must have the same size.",
    );
}

#[test]
fn histogram() {
    for dtype in offered("HistogramFixedWidth") {
        for (low, high, nbins, n) in
            [(0.0, 5.0, 5, 9), (-1.0, 1.0, 1, 300), (-3.7, 41.3, 37, 5000), (0.0, 0.7, 7, 70)]
        {
            let mut v: Vec<f64> = (0..n)
                .map(|i| low - 1.0 + (high - low + 2.0) * number(i, 3, 1000) as f64 / 1000.0)
                .collect();
            // Values on the edges of bins.
            v.extend((0..nbins).map(|i| low + (high - low) * f64::from(i) / f64::from(nbins)));
            v.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
            let (x, range) = (
                HostTensor::floats(dtype, &[v.len()], &v),
                HostTensor::floats(dtype, &[2], &[low, high]),
            );
            let (low, high) = (range.to_f64()[0], range.to_f64()[1]);
            let narrow = |v: f64| if dtype == DType::F64 { v } else { f64::from(v as f32) };
            let step = narrow(high - low) / f64::from(nbins);
            let mut want = vec![0; nbins as usize];
            for v in x.to_f64().iter().filter(|v| !v.is_nan()) {
                let bin = (narrow(v.max(low) - low) / step).floor().min(f64::from(nbins) - 1.0);
                want[bin as usize] += 1;
            }
            let node = Node::new("HistogramFixedWidth").attr("T", dtype).attr("dtype", DType::I32);
            check(
                &node,
                &[x, range, HostTensor::i32(&[], &[nbins])],
                &[HostTensor::i32(&[nbins as usize], &want)],
            );
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
    fails(
        &node,
        &[x, range(0.0, 1.0), HostTensor::i32(&[], &[0])],
        "nbins should be a positive number, but got '0'",
    );
}

#[test]
fn ragged_fill_empty_rows() {
    for dtype in offered("RaggedFillEmptyRows") {
        for (n, rows, spread) in [(3, 5, 5), (0, 3, 1), (0, 0, 1), (9, 4, 2), (3000, 2500, 2500)] {
            let ids: Vec<i64> = (0..n).map(|i| number(i, 1, spread) as i64).collect();
            let v: Vec<f64> = values(dtype, n, 2)
                .iter()
                .map(|v| if dtype == DType::Bool { (v % 2.0).abs() } else { *v })
                .collect();
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
            let inputs = [
                HostTensor::i64(&[n], &ids),
                of_f64(dtype, &[n], &v),
                nrows,
                of_f64(dtype, &[], &[1.0]),
            ];
            check(&Node::new("RaggedFillEmptyRows").attr("T", dtype), &inputs, &want);
        }
    }
    let node = Node::new("RaggedFillEmptyRows").attr("T", DType::F32);
    let inputs = |ids: &[i64], n: usize, rows: i64| {
        let values = HostTensor::f32(&[n], &vec![0.0; n]);
        [
            HostTensor::i64(&[ids.len()], ids),
            values,
            HostTensor::i64(&[], &[rows]),
            HostTensor::f32(&[], &[0.0]),
        ]
    };
    fails(&node, &inputs(&[1, 1, 7], 3, 5), "indices(2, 0) is invalid: 7 >= 5");
    fails(&node, &inputs(&[1, -1, 7], 3, 5), "indices(1, 0) is invalid: -1 >= 5");
    fails(
        &node,
        &inputs(&[1], 2, 5),
        "The length of `values` (2) must match the first dimension of `value_rowids` (1).",
    );
    fails(
        &node,
        &inputs(&[0], 1, 0),
        "Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = 1",
    );
}

#[test]
fn ragged_fill_empty_rows_grad() {
    for dtype in offered("RaggedFillEmptyRowsGrad") {
        for (n, m) in [(3, 5), (0, 2), (0, 0), (50, 400)] {
            let map: Vec<i64> = (0..n).map(|i| (i * m / n) as i64).collect();
            let v: Vec<f64> = (0..m).map(|i| number(i, 1, 2) as f64).collect();
            let picked: Vec<f64> = map.iter().map(|i| v[*i as usize]).collect();
            let rest =
                (0..m).filter(|i| !map.contains(&(*i as i64))).map(|i| v[i]).sum::<f64>() + 0.0;
            let rest = if dtype.size() == 1 { (rest as i64 as u8) as f64 } else { rest };
            let rest = if dtype == DType::I8 { f64::from(rest as u8 as i8) } else { rest };
            let inputs = [HostTensor::i64(&[n], &map), of_f64(dtype, &[m], &v)];
            let want = [of_f64(dtype, &[n], &picked), of_f64(dtype, &[], &[rest])];
            check(&Node::new("RaggedFillEmptyRowsGrad").attr("T", dtype), &inputs, &want);
        }
    }
}

fn ragged(dtype: DType, index: DType, types: &[&str]) -> Node {
    let node = Node::new("RaggedTensorToTensor").attr("T", dtype).attr("Tindex", index);
    node.attr("row_partition_types", types)
}

#[test]
fn ragged_tensor_to_tensor() {
    let open = HostTensor::i64(&[], &[-1]);
    for dtype in offered("RaggedTensorToTensor") {
        let of = |dims: &[usize], v: &[f64]| of_f64(dtype, dims, v);
        // Only zeros and ones, because bool has no other values.
        let [a, b] = [1.0, 0.0];
        let splits = HostTensor::i64(&[4], &[0, 1, 1, 4]);
        let node = ragged(dtype, DType::I64, &["ROW_SPLITS"]);
        let inputs =
            |shape: &HostTensor, values, default| [shape.clone(), values, default, splits.clone()];
        let values = of(&[4], &[a, a, b, a]);
        let want = of(&[3, 3], &[a, b, b, b, b, b, a, b, a]);
        check(&node, &inputs(&open, values.clone(), of(&[], &[b])), &[want]);
        let shape = HostTensor::i64(&[2], &[4, 2]);
        let want = of(&[4, 2], &[a, b, b, b, a, b, b, b]);
        check(&node, &inputs(&shape, values, of(&[], &[b])), &[want]);
        // Elements of several numbers, and a default of its own for each.
        let values = of(&[4, 2], &[a, b, a, a, b, b, b, a]);
        let want = [a, b, b, a, b, a, b, a, b, a, b, a, a, a, b, b, b, a];
        check(&node, &inputs(&open, values, of(&[2], &[b, a])), &[of(&[3, 3, 2], &want)]);
        let node = ragged(dtype, DType::I32, &["FIRST_DIM_SIZE", "VALUE_ROWIDS"]);
        let inputs = [
            open.clone(),
            of(&[3], &[a, a, a]),
            of(&[], &[b]),
            HostTensor::i32(&[], &[3]),
            HostTensor::i32(&[3], &[0, 2, 2]),
        ];
        check(&node, &inputs, &[of(&[3, 2], &[a, b, b, b, a, a])]);
    }
    let f32 = |dims: &[usize], v: &[f32]| HostTensor::f32(dims, v);
    // Two ragged dimensions; no values; the first dimension alone.
    let node = ragged(DType::F32, DType::I64, &["ROW_SPLITS", "ROW_SPLITS"]);
    let inputs = [
        open.clone(),
        f32(&[4], &[1.0, 2.0, 3.0, 4.0]),
        f32(&[], &[9.0]),
        HostTensor::i64(&[3], &[0, 2, 3]),
        HostTensor::i64(&[4], &[0, 1, 3, 4]),
    ];
    check(&node, &inputs, &[f32(&[2, 2, 2], &[1.0, 9.0, 2.0, 3.0, 4.0, 9.0, 9.0, 9.0])]);
    let node = ragged(DType::F32, DType::I64, &["ROW_SPLITS"]);
    let at = |shape: &HostTensor, values: HostTensor, default: HostTensor, splits: &[i64]| {
        [shape.clone(), values, default, HostTensor::i64(&[splits.len()], splits)]
    };
    let nothing = |n: usize| f32(&[n], &vec![1.0; n]);
    let nine = f32(&[], &[9.0]);
    check(&node, &at(&open, nothing(0), nine.clone(), &[0, 0, 0]), &[f32(&[2, 0], &[])]);
    let wide = HostTensor::i64(&[2], &[-1, 2]);
    check(&node, &at(&wide, nothing(0), nine.clone(), &[0, 0]), &[f32(&[1, 2], &[9.0, 9.0])]);
    let values = f32(&[2, 2, 3], &[1.0; 12]);
    let default = f32(&[2, 1], &[8.0, 9.0]);
    let mut want = [1.0; 24];
    want[6..12].copy_from_slice(&[8.0, 8.0, 8.0, 9.0, 9.0, 9.0]);
    want[18..].copy_from_slice(&[8.0, 8.0, 8.0, 9.0, 9.0, 9.0]);
    let two = HostTensor::i64(&[4], &[-1, 2, -1, -1]);
    check(&node, &at(&two, values, default, &[0, 1, 2]), &[f32(&[2, 2, 2, 3], &want)]);
    for (shape, values, default, splits, text) in [
        (HostTensor::i64(&[], &[5]), nothing(4), nine.clone(), &[0, 4][..], "only valid scalar"),
        (HostTensor::i64(&[3], &[3, 2, 5]), nothing(4), nine.clone(), &[0, 4], "shape.rank = 3"),
        (HostTensor::i64(&[2], &[-2, 2]), nothing(4), nine.clone(), &[0, 4], "must be >= -1"),
        (open.clone(), nothing(4), nothing(1), &[0, 4], "must be less than"),
        (open.clone(), nothing(4), nine.clone(), &[0, 3, 1], "Invalid row split size."),
        (open.clone(), nothing(4), nine.clone(), &[0, 6], "rows of values"),
        (open.clone(), nothing(4), nine.clone(), &[], "at least one element"),
    ] {
        fails(&node, &at(&shape, values, default, splits), text);
    }
    let node = ragged(DType::F32, DType::I64, &["FIRST_DIM_SIZE", "VALUE_ROWIDS"]);
    for ids in [[0, 3], [-1, 0]] {
        let inputs = [
            open.clone(),
            nothing(2),
            nine.clone(),
            HostTensor::i64(&[], &[3]),
            HostTensor::i64(&[2], &ids),
        ];
        fails(&node, &inputs, "which is not less than 3");
    }
}

/// Windows of rows, for a small binding.
#[test]
fn ragged_tensor_to_tensor_in_windows() {
    let lengths: Vec<i64> = (0..300).map(|i| number(i, 3, 9) as i64).collect();
    let mut splits = vec![0];
    splits.extend(lengths.iter().scan(0, |sum, n| {
        *sum += n;
        Some(*sum)
    }));
    let n = splits[300] as usize;
    for dtype in [DType::F32, DType::I8] {
        let v: Vec<f64> = (0..3 * n).map(|i| (i % 100) as f64).collect();
        let mut want = Vec::new();
        for ends in splits.windows(2) {
            for j in 0..8 {
                let at = ends[0] + j;
                let own = at < ends[1];
                want.extend((0..3).map(|k| if own { v[at as usize * 3 + k] } else { 7.0 }));
            }
        }
        let inputs: Vec<Input> = [
            HostTensor::i64(&[], &[-1]),
            of_f64(dtype, &[n, 3], &v),
            of_f64(dtype, &[], &[7.0]),
            HostTensor::i64(&[301], &splits),
        ]
        .map(Input::from)
        .to_vec();
        let node = ragged(dtype, DType::I64, &["ROW_SPLITS"]);
        for mut session in [session(), Session::binding(3000).expect("a device")] {
            let got = session.run(&node, &inputs).expect("a tensor");
            assert_eq!(got[0].dims[..], [300, 8, 3]);
            assert_eq!(got[0].to_f64(), want, "{dtype}");
        }
    }
}
