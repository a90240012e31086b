//! Slices, strided slices and assignments to them.

use super::*;

#[test]
fn slice() {
    for dtype in session().supported(SIZES) {
        let cases: &[(&[usize], &[i64], &[i64])] = &[
            (&[], &[], &[]),
            (&[7], &[2], &[-1]),
            (&[4, 6], &[1, 0], &[2, 6]),
            (&[4, 6], &[1, 2], &[-1, 3]),
            (&[4, 6], &[4, 2], &[0, 3]),
            (&[0, 6], &[0, 2], &[-1, 3]),
            (&[3, 4, 5, 2], &[1, 1, 3, 0], &[2, 2, 2, 2]),
        ];
        for (dims, begin, size) in cases {
            let x = data(dtype, dims, 3);
            let out: Vec<usize> = (0..dims.len())
                .map(|d| if size[d] < 0 { dims[d] - begin[d] as usize } else { size[d] as usize })
                .collect();
            let want = reference(&x, &out, |c| {
                Some(c.iter().zip(*begin).map(|(c, b)| c + *b as usize).collect())
            });
            check(&typed("Slice", dtype), &[x, i32s(begin), i32s(size)], &[want]);
        }
    }
    let x = data(DType::F32, &[4, 6], 0);
    let node = typed("Slice", DType::F32);
    fails(
        &node,
        &[x.clone(), i32s(&[5, 0]), i32s(&[1, 1])],
        "Expected begin[0] in [0, 4], but got 5",
    );
    fails(
        &node,
        &[x.clone(), i32s(&[1, 0]), i32s(&[4, 1])],
        "Expected size[0] in [0, 3], but got 4",
    );
    fails(
        &node,
        &[x, i32s(&[1]), i32s(&[4])],
        "1-D tensors of size 2, but got shapes [1] and [1] instead.",
    );
}

/// One entry of a slice in numpy's notation.
#[derive(Debug, Clone)]
enum Entry {
    Index(i64),
    Range(Option<i64>, Option<i64>, i64),
    NewAxis,
    Ellipsis,
}

/// numpy's result: for each output dimension the coordinates that it takes of an input dimension,
/// or a new axis.
fn numpy(dims: &[usize], entries: &[Entry]) -> (Vec<usize>, Vec<Vec<usize>>) {
    let taken = entries.iter().filter(|e| matches!(e, Entry::Index(_) | Entry::Range(..))).count();
    let mut entries = entries.to_vec();
    if !entries.iter().any(|e| matches!(e, Entry::Ellipsis)) {
        entries.push(Entry::Ellipsis);
    }
    let (mut out, mut coordinates, mut d) = (Vec::new(), Vec::new(), 0);
    for e in entries {
        match e {
            Entry::Ellipsis => {
                for _ in 0..dims.len() - taken {
                    out.push(dims[d]);
                    coordinates.push((0..dims[d]).collect());
                    d += 1;
                }
            }
            Entry::NewAxis => out.push(1),
            Entry::Index(i) => {
                coordinates.push(vec![if i < 0 { i + dims[d] as i64 } else { i } as usize]);
                d += 1;
            }
            Entry::Range(begin, end, step) => {
                let n = dims[d] as i64;
                let wrap = |x: i64| if x < 0 { x + n } else { x };
                let list: Vec<usize> = if step > 0 {
                    let begin = begin.map_or(0, |b| wrap(b).clamp(0, n));
                    let end = end.map_or(n, |e| wrap(e).clamp(0, n));
                    (begin..end).step_by(step as usize).map(|i| i as usize).collect()
                } else {
                    let begin = begin.map_or(n - 1, |b| wrap(b).clamp(-1, n - 1));
                    let end = end.map_or(-1, |e| wrap(e).clamp(-1, n - 1));
                    (end + 1..=begin).rev().step_by(-step as usize).map(|i| i as usize).collect()
                };
                out.push(list.len());
                coordinates.push(list);
                d += 1;
            }
        }
    }
    (out, coordinates)
}

/// begin, end, strides and the masks as attributes of `node`.
fn strided(node: Node, entries: &[Entry]) -> (Node, [HostTensor; 3]) {
    let (mut begin, mut end, mut strides) = (Vec::new(), Vec::new(), Vec::new());
    let mut masks = [0i64; 5];
    for (i, e) in entries.iter().enumerate() {
        let bit = 1 << i;
        let (b, e, s) = match e {
            Entry::Index(x) => {
                masks[4] |= bit;
                (*x, x + 1, 1)
            }
            Entry::Range(b, e, s) => {
                masks[0] |= if b.is_none() { bit } else { 0 };
                masks[1] |= if e.is_none() { bit } else { 0 };
                (b.unwrap_or(0), e.unwrap_or(0), *s)
            }
            Entry::NewAxis => {
                masks[3] |= bit;
                (0, 0, 1)
            }
            Entry::Ellipsis => {
                masks[2] |= bit;
                (0, 0, 1)
            }
        };
        begin.push(b);
        end.push(e);
        strides.push(s);
    }
    let names = ["begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"];
    let node = names.iter().zip(masks).fold(node, |n, (name, m)| n.attr(name, m));
    (node, [i32s(&begin), i32s(&end), i32s(&strides)])
}

fn entries_for(dims: Vec<usize>) -> impl Strategy<Value = (Vec<usize>, Vec<Entry>)> {
    let one = |n: usize| {
        let n = n as i64;
        let bound = || proptest::option::of(-n - 2..n + 3);
        let step = prop_oneof![Just(1i64), Just(2), Just(3), Just(-1), Just(-2), Just(7), Just(-9)];
        let range = (bound(), bound(), step).prop_map(|(b, e, s)| Entry::Range(b, e, s));
        if n > 0 {
            prop_oneof![3 => range, 1 => (-n..n).prop_map(Entry::Index)].boxed()
        } else {
            range.boxed()
        }
    };
    let all: Vec<_> = dims.iter().map(|n| one(*n)).collect();
    let rank = dims.len();
    (all, 0..=rank, 0..=rank, proptest::bool::ANY, proptest::collection::vec(0..=rank, 0..2))
        .prop_map(move |(entries, from, len, ellipsis, new_axes)| {
            // An ellipsis replaces some of the entries; without one, trailing entries may be left
            // out.
            let mut entries = entries;
            if ellipsis {
                let to = (from + len).min(rank);
                entries.splice(from..to, [Entry::Ellipsis]);
            } else {
                entries.truncate(from.max(len));
            }
            for at in new_axes {
                entries.insert(at.min(entries.len()), Entry::NewAxis);
            }
            (dims.clone(), entries)
        })
}

#[test]
fn strided_slices_follow_numpy() {
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..Default::default()
    });
    let strategy =
        (proptest::collection::vec(0usize..6, 0..5).prop_flat_map(entries_for), 0usize..5);
    runner
        .run(&strategy, |((dims, entries), size)| {
            let dtype = SIZES[size];
            if !session().runs(dtype) {
                return Ok(());
            }
            let x = data(dtype, &dims, 4);
            let (out, lists) = numpy(&dims, &entries);
            let picked: Vec<usize> = lists.iter().map(Vec::len).collect();
            let mut want = reference(&x, &picked, |c| {
                Some(c.iter().zip(&lists).map(|(c, l)| l[*c]).collect())
            });
            want.dims = out.as_slice().into();
            let (node, [b, e, s]) = strided(typed("StridedSlice", dtype), &entries);
            check(
                &node,
                &[x.clone(), b.clone(), e.clone(), s.clone()],
                std::slice::from_ref(&want),
            );

            // The gradient puts the slice back to where it came from.
            let (node, _) = strided(typed("StridedSliceGrad", dtype), &entries);
            let shape: Vec<i64> = dims.iter().map(|n| *n as i64).collect();
            let back = reference(&want_at(&want, &picked), &dims, |c| {
                c.iter().zip(&lists).map(|(c, l)| l.iter().position(|x| x == c)).collect()
            });
            check(&node, &[i32s(&shape), b, e, s, want], &[back]);
            Ok(())
        })
        .unwrap();
}

fn want_at(t: &HostTensor, dims: &[usize]) -> HostTensor {
    HostTensor { dims: dims.into(), ..t.clone() }
}

#[test]
fn strided_slices_of_int32_run_on_the_host() {
    let x = data(DType::I32, &[5, 3], 1);
    let entries = [Entry::Range(None, None, -2), Entry::Index(-1)];
    let want = reference(&x, &[3], |c| Some(vec![4 - 2 * c[0], 2]));
    let (node, [b, e, s]) = strided(typed("StridedSlice", DType::I32), &entries);
    check(&node, &[x, b, e, s], &[want]);
}

#[test]
fn strided_slice_errors() {
    let x = data(DType::F32, &[4, 6], 0);
    let fails_with = |entries: &[Entry], message: &str| {
        let (node, [b, e, s]) = strided(typed("StridedSlice", DType::F32), entries);
        fails(&node, &[x.clone(), b, e, s], message);
    };
    let all = Entry::Range(None, None, 1);
    fails_with(&[Entry::Index(4)], "slice index 4 of dimension 0 out of bounds.");
    fails_with(&[Entry::Range(None, None, 0)], "strides[0] must be non-zero");
    fails_with(&[Entry::Ellipsis, Entry::Ellipsis], "Multiple ellipses in slice spec not allowed");
    fails_with(
        &[all.clone(), all.clone(), all],
        "Index out of range using input dim 2; input has only 2 dims",
    );
}

#[test]
fn slices_are_assigned() {
    let entries = [Entry::Range(Some(-1), Some(0), -2), Entry::Range(Some(1), None, 3)];
    for dtype in session().supported(SIZES.into_iter().chain([DType::I32])) {
        let x = data(dtype, &[5, 7], 1);
        let (out, lists) = numpy(&[5, 7], &entries);
        let value = data(dtype, &out, 2);
        let mut want = x.clone();
        let size = dtype.size();
        for (i, c) in coordinates(&out).iter().enumerate() {
            let at = (lists[0][c[0]] * 7 + lists[1][c[1]]) * size;
            want.bytes[at..][..size].copy_from_slice(&value.bytes[i * size..][..size]);
        }
        let (node, [b, e, s]) = strided(typed("TensorStridedSliceUpdate", dtype), &entries);
        check(
            &node,
            &[x.clone(), b.clone(), e.clone(), s.clone(), value.clone()],
            std::slice::from_ref(&want),
        );
        if dtype != DType::I32 {
            let mut session = session();
            let variable = session.variable(&x).unwrap();
            let (node, _) = strided(typed("ResourceStridedSliceAssign", dtype), &entries);
            let inputs = [b, e, s, value].map(Input::from);
            let inputs: Vec<Input> =
                [Input::Variable(variable)].into_iter().chain(inputs).collect();
            session.run(&node, &inputs).unwrap();
            assert!(session.variable_value(variable).unwrap().bytes == want.bytes, "{dtype}");
        }
    }
}

#[test]
fn values_are_broadcast_into_slices() {
    let entries = [Entry::Range(Some(0), Some(2), 1), Entry::Range(Some(0), Some(5), 2)];
    for dtype in session().supported(SIZES.into_iter().chain([DType::I32])) {
        let x = data(dtype, &[4, 6], 1);
        let (node, [b, e, s]) = strided(typed("TensorStridedSliceUpdate", dtype), &entries);
        for dims in [&[][..], &[1], &[3], &[2, 1], &[1, 1, 1, 3]] {
            let value = data(dtype, dims, 2);
            let mut want = x.clone();
            let size = dtype.size();
            for c in coordinates(&[2, 3]) {
                let lead = dims.len().saturating_sub(2);
                let inner = &dims[lead..];
                let from = c[2 - inner.len()..]
                    .iter()
                    .zip(inner)
                    .fold(0, |at, (c, n)| at * n + if *n == 1 { 0 } else { *c });
                let at = (c[0] * 6 + 2 * c[1]) * size;
                want.bytes[at..][..size].copy_from_slice(&value.bytes[from * size..][..size]);
            }
            let inputs = [x.clone(), b.clone(), e.clone(), s.clone(), value];
            check(&node, &inputs, std::slice::from_ref(&want));
        }
        let value = data(dtype, &[2], 2);
        let inputs = [x.clone(), b.clone(), e.clone(), s.clone(), value];
        fails(&node, &inputs, "Cannot broadcast input shape [2] into final shape [2,3]");
    }
}

/// Packed elements are written in windows where a tensor exceeds the largest binding, and a slice
/// that lies in one piece is a copy.
#[test]
fn slices_beyond_one_binding_of_packed_elements() {
    let limit = 4096;
    let mut small = Session::binding(limit as u64).unwrap();
    let range = Entry::Range;
    for dtype in [DType::BF16, DType::I8, DType::Bool] {
        let dims = &[777, 9][..];
        let x = data(dtype, dims, 1);
        assert!(x.bytes.len() > limit + 512);
        for entries in [
            vec![range(Some(300), Some(310), 1)],
            vec![range(Some(3), Some(775), 1)],
            vec![range(None, None, 1), range(Some(2), Some(7), 1)],
            vec![range(Some(5), None, 3), range(None, None, 2)],
            vec![range(Some(770), Some(4), -7), range(Some(8), None, -3)],
            vec![Entry::Index(500), Entry::Index(3)],
            vec![range(Some(100), Some(700), 1), Entry::Index(4)],
        ] {
            let (out, lists) = numpy(dims, &entries);
            let value = data(dtype, &out, 2);
            let picked: Vec<usize> = lists.iter().map(Vec::len).collect();
            let taken = want_at(&value, &picked);
            let at = |c: &[usize]| -> Option<Vec<usize>> {
                c.iter().zip(&lists).map(|(c, l)| l.iter().position(|x| x == c)).collect()
            };
            let (node, [b, e, s]) = strided(typed("ResourceStridedSliceAssign", dtype), &entries);
            let mut want = x.clone();
            let back = reference(&taken, dims, |c| at(c));
            let size = dtype.size();
            for (i, c) in coordinates(dims).into_iter().enumerate() {
                if at(&c).is_some() {
                    let here = i * size..(i + 1) * size;
                    want.bytes[here.clone()].copy_from_slice(&back.bytes[here]);
                }
            }
            let variable = small.variable(&x).unwrap();
            let inputs = [b.clone(), e.clone(), s.clone(), value.clone()].map(Input::from);
            let inputs: Vec<Input> =
                [Input::Variable(variable)].into_iter().chain(inputs).collect();
            small.run(&node, &inputs).unwrap();
            let got = small.variable_value(variable).unwrap();
            assert!(got.bytes == want.bytes, "{dtype} {entries:?}");

            let (node, _) = strided(typed("StridedSliceGrad", dtype), &entries);
            let shape = i32s(&dims.iter().map(|n| *n as i64).collect::<Vec<_>>());
            let got = run(&mut small, &node, &[shape, b, e, s, value]).unwrap().remove(0);
            assert!(got.bytes == back.bytes, "gradient, {dtype} {entries:?}");
        }
    }
}
