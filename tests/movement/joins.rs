//! Concatenations, splits, packs.

use tensorflow_wgpu::device::Selection;

use super::*;

#[test]
fn concat_and_split() {
    for dtype in session().supported(SIZES) {
        for (dims, axis, sizes) in [
            (&[5][..], 0i64, &[2, 3, 0][..]),
            (&[4, 9], 1, &[1, 1, 3, 4]),
            (&[4, 9], -1, &[9, 0]),
            (&[9, 4], 0, &[1, 3, 5]),
            (&[2, 8, 3], 1, &[2, 6]),
            (&[3, 2], 1, &[1, 1]),
            (&[0, 4], 1, &[2, 2]),
            (&[2, 16, 4], 1, &[4, 8, 4]),
            // More parts than one dispatch takes, with empty ones among them.
            (&[3, 40], 1, &[4, 8, 0, 4, 4, 8, 0, 4, 4, 2, 2]),
        ] {
            let a = axis.rem_euclid(dims.len() as i64) as usize;
            let whole = data(dtype, dims, 13);
            let mut begin = 0;
            let parts: Vec<HostTensor> = sizes
                .iter()
                .map(|n| {
                    let mut out = dims.to_vec();
                    out[a] = *n as usize;
                    let part = reference(&whole, &out, |c| {
                        let mut s = c.to_vec();
                        s[a] += begin;
                        Some(s)
                    });
                    begin += *n as usize;
                    part
                })
                .collect();
            let axis = HostTensor::i32(&[], &[axis as i32]);
            let n = sizes.len() as i64;
            let mut inputs = parts.clone();
            inputs.push(axis.clone());
            check(&typed("ConcatV2", dtype).attr("N", n), &inputs, std::slice::from_ref(&whole));
            inputs.rotate_right(1);
            check(&typed("Concat", dtype).attr("N", n), &inputs, std::slice::from_ref(&whole));
            let node = typed("SplitV", dtype).attr("Tlen", DType::I32).attr("num_split", n);
            let mut unknown = sizes.to_vec();
            unknown[0] = -1;
            for sizes in [sizes, &unknown] {
                check(&node, &[whole.clone(), i32s(sizes), axis.clone()], &parts);
            }
        }
        let x = data(dtype, &[4, 6, 3], 14);
        let parts: Vec<HostTensor> = (0..3)
            .map(|i| reference(&x, &[4, 2, 3], |c| Some(vec![c[0], c[1] + 2 * i, c[2]])))
            .collect();
        check(
            &typed("Split", dtype).attr("num_split", 3),
            &[HostTensor::i32(&[], &[1]), x],
            &parts,
        );
    }
    let node = typed("ConcatV2", DType::F32).attr("N", 2);
    let (a, b) = (data(DType::F32, &[2, 3], 0), data(DType::F32, &[3, 3], 0));
    let axis = |a: i32| HostTensor::i32(&[], &[a]);
    fails(
        &node,
        &[a.clone(), b.clone(), axis(1)],
        "Dimension 0 in both shapes must be equal: shape[0] = [2,3] vs. shape[1] = [3,3]",
    );
    fails(
        &node,
        &[a.clone(), b, axis(2)],
        "Expected concatenating dimensions in the range [-2, 2), but got 2",
    );
    fails(
        &node,
        &[a.clone(), data(DType::F32, &[2], 0), axis(0)],
        "Ranks of all input tensors should match",
    );
    let split = typed("Split", DType::F32).attr("num_split", 2);
    fails(
        &split,
        &[axis(1), a.clone()],
        "Number of ways to split should evenly divide the split dimension",
    );
    fails(
        &split,
        &[axis(2), a.clone()],
        "-input rank(-2) <= split_dim < input rank (2), but got 2",
    );
    let split_v = typed("SplitV", DType::F32).attr("Tlen", DType::I32).attr("num_split", 2);
    fails(
        &split_v,
        &[a.clone(), i32s(&[1, 3]), axis(1)],
        "Determined shape must either match input shape",
    );
    fails(&split_v, &[a, i32s(&[-1, -1]), axis(1)], "There can only be one -1 in the input.");
}

/// Parts are moved together.
#[test]
fn dispatches() {
    // Other tests must not dispatch on the device whose dispatches are counted.
    let selection = Selection::enumerate(&|name| std::env::var(name).ok());
    let mut session = Session::new(Device::open(&selection.adapters[0]).unwrap());
    for (columns, parts, want) in [(512, 4, [1; 2]), (520, 8, [2; 2]), (1 << 15, 4, [1; 2])] {
        let whole = data(DType::F32, &[4, columns], 40);
        let axis = HostTensor::i32(&[], &[1]);
        let count = |session: &mut Session, node: Node, inputs: &[HostTensor]| {
            let before = session.device.statistics().dispatches;
            let outputs = run(session, &node, inputs).unwrap();
            (outputs, session.device.statistics().dispatches - before)
        };
        let split = typed("Split", DType::F32).attr("num_split", parts);
        let (mut outputs, split) = count(&mut session, split, &[axis.clone(), whole.clone()]);
        outputs.push(axis);
        let concat = typed("ConcatV2", DType::F32).attr("N", parts);
        let (joined, concat) = count(&mut session, concat, &outputs);
        assert_eq!(
            (joined[0].bytes == whole.bytes, [split, concat]),
            (true, want),
            "{columns} in {parts}"
        );
    }
}

#[test]
fn pack_and_unpack() {
    for dtype in session().supported(SIZES.into_iter().chain([DType::I32])) {
        for (dims, axis, n) in [
            (&[][..], 0i64, 3usize),
            (&[5], 0, 2),
            (&[5], 1, 3),
            (&[3, 4], -1, 2),
            (&[3, 4], 1, 5),
            (&[0], 0, 2),
            (&[2], 0, 1),
            (&[4], 0, 16),
            (&[2, 4], 1, 9),
        ] {
            let a = axis.rem_euclid(dims.len() as i64 + 1) as usize;
            let parts: Vec<HostTensor> = (0..n).map(|i| data(dtype, dims, 20 + i)).collect();
            let mut out = dims.to_vec();
            out.insert(a, n);
            let size = dtype.size();
            let mut bytes = Vec::new();
            for c in coordinates(&out) {
                let mut s = c.clone();
                let part = &parts[s.remove(a)];
                bytes.extend_from_slice(&part.bytes[flat(dims, &s) * size..][..size]);
            }
            let whole = HostTensor { dtype, dims: out.as_slice().into(), bytes };
            check(
                &typed("Pack", dtype).attr("axis", axis).attr("N", n as i64),
                &parts,
                std::slice::from_ref(&whole),
            );
            if dtype != DType::I32 {
                check(
                    &typed("Unpack", dtype).attr("axis", axis).attr("num", n as i64),
                    &[whole],
                    &parts,
                );
            }
        }
    }
    let (a, b) = (data(DType::F32, &[2], 0), data(DType::F32, &[3], 0));
    let node = typed("Pack", DType::F32).attr("axis", 0).attr("N", 2);
    fails(
        &node,
        &[a.clone(), b],
        "Shapes of all inputs must match: values[0].shape = [2] != values[1].shape = [3]",
    );
    fails(
        &typed("Pack", DType::F32).attr("axis", 2).attr("N", 1),
        std::slice::from_ref(&a),
        "axis = 2 not in [-2, 2)",
    );
    fails(
        &typed("Unpack", DType::F32).attr("axis", 0).attr("num", 3),
        &[a],
        "Input shape axis 0 must equal 3, got shape [2]",
    );
}
