//! Data movement against plain index arithmetic: every element size, empty and scalar tensors, rank 8, odd extents, addresses
//! inside other tensors, more workgroups than one dimension holds, and more bytes than one binding.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tensorflow_wgpu::device::Device;
use tensorflow_wgpu::kernels::movement::walk::{Tiling, copy_strided_with};
use tensorflow_wgpu::layout::{Iteration, dense_strides};
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor, Tensor};

/// One type for each element size.
const SIZES: [DType; 5] = [DType::U8, DType::F16, DType::F32, DType::I64, DType::C128];

fn session() -> Session {
    Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers")
}

/// A tensor whose bytes tell elements apart.
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

/// The tensor whose element at each coordinate comes from the input's element at `source(coordinate)`, or is zero.
fn reference(x: &HostTensor, out: &[usize], source: impl Fn(&[usize]) -> Option<Vec<usize>>) -> HostTensor {
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

fn run(session: &mut Session, node: &Node, inputs: &[HostTensor]) -> Result<Vec<HostTensor>, Error> {
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
        Err(Error::InvalidArgument(m)) => assert!(m.contains(message), "{m:?} should say {message:?}"),
        other => panic!("{node:?} should fail with {message:?}, gave {other:?}"),
    }
}

fn typed(op: &str, dtype: DType) -> Node {
    Node::new(op).attr("T", dtype)
}

#[test]
fn transpose() {
    let cases: &[(&[usize], &[i64])] = &[
        (&[], &[]),
        (&[5], &[0]),
        (&[3, 5], &[1, 0]),
        (&[0, 5], &[1, 0]),
        (&[2, 3, 4], &[2, 0, 1]),
        (&[2, 3, 4], &[0, 2, 1]),
        (&[2, 5, 3, 8], &[0, 2, 1, 3]),
        (&[2, 1, 3, 2, 1, 2, 2, 3], &[7, 3, 0, 5, 1, 6, 2, 4]),
        (&[33, 65], &[1, 0]),
    ];
    for dtype in SIZES {
        for (dims, perm) in cases {
            let x = data(dtype, dims, 1);
            let out: Vec<usize> = perm.iter().map(|p| dims[*p as usize]).collect();
            let want = reference(&x, &out, |c| {
                let mut s = vec![0; c.len()];
                perm.iter().zip(c).for_each(|(p, c)| s[*p as usize] = *c);
                Some(s)
            });
            check(&typed("Transpose", dtype), &[x, i32s(perm)], &[want]);
        }
    }
    let x = data(DType::F32, &[2, 3], 0);
    fails(&typed("Transpose", DType::F32), &[x.clone(), i32s(&[0])], "expects a vector of size 2");
    fails(&typed("Transpose", DType::F32), &[x.clone(), i32s(&[0, 2])], "2 is out of range [0 .. 2)");
    fails(&typed("Transpose", DType::F32), &[x, i32s(&[0, 0])], "1 is missing from {0,0}.");
}

fn upload(device: &Device, x: &HostTensor) -> Tensor {
    let address = device.allocate(x.bytes.len() as u64).unwrap();
    device.upload(address, &x.bytes).unwrap();
    Tensor::new(x.dtype, &x.dims, address)
}

fn download(device: &Device, t: &Tensor) -> Vec<u8> {
    let mut bytes = vec![0; t.bytes() as usize];
    device.download(t.address, &mut bytes).unwrap();
    bytes
}

#[test]
fn tiled_transposes_equal_plain_ones() {
    let device = session().device;
    for dtype in [DType::F32, DType::I64, DType::C128, DType::F16] {
        for dims in [[1, 32, 32], [1, 33, 70], [3, 64, 47], [2, 100, 33]] {
            let [b, m, n] = dims;
            let x = data(dtype, &dims, 2);
            let want = reference(&x, &[b, n, m], |c| Some(vec![c[0], c[2], c[1]]));
            let src = upload(&device, &x);
            let out = [b, n, m];
            let walk =
                Iteration::over(&out).operand(&[(m * n) as i64, 1, n as i64], 0).operand(&dense_strides(&out), 0);
            for tiling in [Tiling::Never, Tiling::Always] {
                let dst = upload(&device, &data(dtype, &out, 9));
                copy_strided_with(&device, &walk, &src, &dst, tiling).unwrap();
                assert!(download(&device, &dst) == want.bytes, "{dtype} {dims:?} {tiling:?}");
                device.deallocate(dst.address).unwrap();
            }
            device.deallocate(src.address).unwrap();
        }
    }
}

#[test]
fn slice() {
    for dtype in SIZES {
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
            let want = reference(&x, &out, |c| Some(c.iter().zip(*begin).map(|(c, b)| c + *b as usize).collect()));
            check(&typed("Slice", dtype), &[x, i32s(begin), i32s(size)], &[want]);
        }
    }
    let x = data(DType::F32, &[4, 6], 0);
    let node = typed("Slice", DType::F32);
    fails(&node, &[x.clone(), i32s(&[5, 0]), i32s(&[1, 1])], "Expected begin[0] in [0, 4], but got 5");
    fails(&node, &[x.clone(), i32s(&[1, 0]), i32s(&[4, 1])], "Expected size[0] in [0, 3], but got 4");
    fails(&node, &[x, i32s(&[1]), i32s(&[4])], "1-D tensors of size 2, but got shapes [1] and [1] instead.");
}

/// One entry of a slice as numpy writes it.
#[derive(Debug, Clone)]
enum Entry {
    Index(i64),
    Range(Option<i64>, Option<i64>, i64),
    NewAxis,
    Ellipsis,
}

/// What numpy gives: for each output dimension the coordinates that it takes of an input dimension, or a new axis.
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
        if n > 0 { prop_oneof![3 => range, 1 => (-n..n).prop_map(Entry::Index)].boxed() } else { range.boxed() }
    };
    let all: Vec<_> = dims.iter().map(|n| one(*n)).collect();
    let rank = dims.len();
    (all, 0..=rank, 0..=rank, proptest::bool::ANY, proptest::collection::vec(0..=rank, 0..2)).prop_map(
        move |(entries, from, len, ellipsis, new_axes)| {
            // An ellipsis replaces some of the entries; without one, trailing entries may be left out.
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
        },
    )
}

#[test]
fn strided_slices_follow_numpy() {
    let mut runner = TestRunner::new(ProptestConfig { cases: 150, failure_persistence: None, ..Default::default() });
    let strategy = (proptest::collection::vec(0usize..6, 0..5).prop_flat_map(entries_for), 0usize..5);
    runner
        .run(&strategy, |((dims, entries), size)| {
            let dtype = SIZES[size];
            let x = data(dtype, &dims, 4);
            let (out, lists) = numpy(&dims, &entries);
            let picked: Vec<usize> = lists.iter().map(Vec::len).collect();
            let mut want = reference(&x, &picked, |c| Some(c.iter().zip(&lists).map(|(c, l)| l[*c]).collect()));
            want.dims = out.as_slice().into();
            let (node, [b, e, s]) = strided(typed("StridedSlice", dtype), &entries);
            check(&node, &[x.clone(), b.clone(), e.clone(), s.clone()], std::slice::from_ref(&want));

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
    fails_with(&[all.clone(), all.clone(), all], "Index out of range using input dim 2; input has only 2 dims");
}

#[test]
fn broadcast_and_tile() {
    for dtype in SIZES {
        for (dims, out) in [
            (&[][..], &[3][..]),
            (&[1, 3], &[2, 3]),
            (&[2, 1, 4], &[3, 2, 5, 4]),
            (&[4], &[4]),
            (&[1], &[0]),
            (&[], &[]),
        ] {
            let x = data(dtype, dims, 5);
            let lead = out.len() - dims.len();
            let want = reference(&x, out, |c| {
                Some((0..dims.len()).map(|d| if dims[d] == 1 { 0 } else { c[lead + d] }).collect())
            });
            let shape: Vec<i64> = out.iter().map(|n| *n as i64).collect();
            check(&typed("BroadcastTo", dtype), &[x, i32s(&shape)], &[want]);
        }
        for (dims, multiples) in
            [(&[][..], &[][..]), (&[3], &[4]), (&[2, 3], &[1, 1]), (&[2, 3, 2], &[3, 1, 2]), (&[5], &[0])]
        {
            let x = data(dtype, dims, 6);
            let out: Vec<usize> = dims.iter().zip(multiples).map(|(n, m)| n * *m as usize).collect();
            let want = reference(&x, &out, |c| Some(c.iter().zip(dims).map(|(c, n)| c % n).collect()));
            let node = typed("Tile", dtype).attr("Tmultiples", DType::I32);
            check(&node, &[x, i32s(multiples)], &[want]);
        }
    }
    let x = data(DType::F32, &[2, 3], 0);
    fails(&typed("BroadcastTo", DType::F32), &[x.clone(), i32s(&[3, 3])], "Incompatible shapes: [2,3] vs. [3,3]");
    let tile = typed("Tile", DType::F32).attr("Tmultiples", DType::I32);
    fails(&tile, &[x.clone(), i32s(&[1])], "Expected multiples argument to be a vector of length 2 but got length 1");
    fails(&tile, &[x, i32s(&[1, -1])], "Expected multiples[1] >= 0, but got -1");
}

#[test]
fn reverse_and_roll() {
    for dtype in SIZES {
        for (dims, axes) in
            [(&[5][..], &[0][..]), (&[3, 4], &[1]), (&[3, 4, 2], &[0, -1]), (&[0, 4], &[0]), (&[3, 2], &[])]
        {
            let x = data(dtype, dims, 7);
            let reversed = |d: usize| axes.contains(&(d as i64)) || axes.contains(&(d as i64 - dims.len() as i64));
            let want = reference(&x, dims, |c| {
                Some((0..c.len()).map(|d| if reversed(d) { dims[d] - 1 - c[d] } else { c[d] }).collect())
            });
            check(
                &typed("ReverseV2", dtype).attr("Tidx", DType::I32),
                &[x.clone(), i32s(axes)],
                std::slice::from_ref(&want),
            );
            let flags: Vec<bool> = (0..dims.len()).map(reversed).collect();
            check(&typed("Reverse", dtype), &[x, HostTensor::bool(&[dims.len()], &flags)], &[want]);
        }
        for (dims, shift, axes) in [
            (&[7][..], &[2][..], &[0][..]),
            (&[4, 6], &[-1, 8], &[0, 1]),
            (&[4, 6], &[2, 3], &[-1, 1]),
            (&[4, 3, 2], &[1], &[1]),
            (&[0, 2], &[1], &[0]),
        ] {
            if dtype == DType::U8 {
                continue;
            }
            let x = data(dtype, dims, 8);
            let mut shifts: Vec<i64> = vec![0; dims.len()];
            for (s, a) in shift.iter().zip(axes) {
                shifts[i64::rem_euclid(*a, dims.len() as i64) as usize] += *s;
            }
            let want = reference(&x, dims, |c| {
                Some((0..c.len()).map(|d| (c[d] as i64 - shifts[d]).rem_euclid(dims[d] as i64) as usize).collect())
            });
            let node = typed("Roll", dtype).attr("Tshift", DType::I32).attr("Taxis", DType::I32);
            check(&node, &[x, i32s(shift), i32s(axes)], &[want]);
        }
    }
    let x = data(DType::F32, &[2, 3], 0);
    let reverse = typed("ReverseV2", DType::F32).attr("Tidx", DType::I32);
    fails(&reverse, &[x.clone(), i32s(&[2])], "'axis'[0] = 2 is out of valid range [0, 1");
    fails(&reverse, &[x, i32s(&[1, -1])], "axis 1 specified more than once.");
}

#[test]
fn pads() {
    for dtype in SIZES {
        for (dims, pads) in [
            (&[][..], &[][..]),
            (&[3], &[(1, 2)]),
            (&[0], &[(1, 2)]),
            (&[3, 4], &[(0, 0), (0, 0)]),
            (&[2, 3, 4], &[(1, 0), (2, 1), (0, 0)]),
            (&[2, 4, 4, 3], &[(0, 0), (1, 1), (1, 2), (0, 0)]),
            (&[3, 4], &[(2, 2), (2, 4)]),
        ] {
            let x = data(dtype, dims, 10);
            let flat: Vec<i32> = pads.iter().flat_map(|(a, b)| [*a, *b]).collect();
            let paddings = HostTensor::i32(&[dims.len(), 2], &flat);
            let out: Vec<usize> = dims.iter().zip(pads).map(|(n, (a, b))| n + (a + b) as usize).collect();
            let source = |c: &[usize]| -> Option<Vec<usize>> {
                (0..c.len()).map(|d| c[d].checked_sub(pads[d].0 as usize).filter(|k| *k < dims[d])).collect()
            };
            let want = reference(&x, &out, source);
            let node = |op| typed(op, dtype).attr("Tpaddings", DType::I32);
            check(&node("Pad"), &[x.clone(), paddings.clone()], std::slice::from_ref(&want));
            let constant = data(dtype, &[], 11);
            let mut filled = want.clone();
            let size = dtype.size();
            for (i, c) in coordinates(&out).iter().enumerate() {
                if source(c).is_none() {
                    filled.bytes[i * size..][..size].copy_from_slice(&constant.bytes);
                }
            }
            check(&node("PadV2"), &[x, paddings, constant], &[filled]);
        }
        for (mode, skip) in [("SYMMETRIC", 0i64), ("REFLECT", 1)] {
            for (dims, pads) in
                [(&[4][..], &[(3, 2)][..]), (&[3, 5], &[(2, 1), (0, 4)]), (&[2, 3, 2], &[(0, 0), (2, 2), (0, 0)])]
            {
                let x = data(dtype, dims, 12);
                let flat: Vec<i32> = pads.iter().flat_map(|(a, b)| [*a, *b]).collect();
                let out: Vec<usize> = dims.iter().zip(pads).map(|(n, (a, b))| n + (a + b) as usize).collect();
                let want = reference(&x, &out, |c| {
                    Some(
                        (0..c.len())
                            .map(|d| {
                                let (k, n) = (c[d] as i64 - i64::from(pads[d].0), dims[d] as i64);
                                let k = if k < 0 { -k - 1 + skip } else { k };
                                (if k >= n { 2 * n - 1 - skip - k } else { k }) as usize
                            })
                            .collect(),
                    )
                });
                let node = typed("MirrorPad", dtype).attr("Tpaddings", DType::I32).attr("mode", mode);
                check(&node, &[x, HostTensor::i32(&[dims.len(), 2], &flat)], &[want]);
            }
        }
    }
    let x = data(DType::F32, &[2, 3], 0);
    let pad = typed("Pad", DType::F32).attr("Tpaddings", DType::I32);
    fails(
        &pad,
        &[x.clone(), HostTensor::i32(&[1, 2], &[0, 0])],
        "The first dimension of paddings must be the rank of inputs",
    );
    fails(&pad, &[x.clone(), HostTensor::i32(&[2, 2], &[0, 0, 0, -1])], "Paddings must be non-negative: 0 -1");
    fails(&pad, &[x, HostTensor::i32(&[4], &[0, 0, 0, 0])], "paddings must be a matrix with 2 columns: [4]");
}

#[test]
fn concat_and_split() {
    for dtype in SIZES {
        for (dims, axis, sizes) in [
            (&[5][..], 0i64, &[2, 3, 0][..]),
            (&[4, 9], 1, &[1, 1, 3, 4]),
            (&[4, 9], -1, &[9, 0]),
            (&[9, 4], 0, &[1, 3, 5]),
            (&[2, 8, 3], 1, &[2, 6]),
            (&[3, 2], 1, &[1, 1]),
            (&[0, 4], 1, &[2, 2]),
            (&[2, 16, 4], 1, &[4, 8, 4]),
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
        let parts: Vec<HostTensor> =
            (0..3).map(|i| reference(&x, &[4, 2, 3], |c| Some(vec![c[0], c[1] + 2 * i, c[2]]))).collect();
        check(&typed("Split", dtype).attr("num_split", 3), &[HostTensor::i32(&[], &[1]), x], &parts);
    }
    let node = typed("ConcatV2", DType::F32).attr("N", 2);
    let (a, b) = (data(DType::F32, &[2, 3], 0), data(DType::F32, &[3, 3], 0));
    let axis = |a: i32| HostTensor::i32(&[], &[a]);
    fails(
        &node,
        &[a.clone(), b.clone(), axis(1)],
        "Dimension 0 in both shapes must be equal: shape[0] = [2,3] vs. shape[1] = [3,3]",
    );
    fails(&node, &[a.clone(), b, axis(2)], "Expected concatenating dimensions in the range [-2, 2), but got 2");
    fails(&node, &[a.clone(), data(DType::F32, &[2], 0), axis(0)], "Ranks of all input tensors should match");
    let split = typed("Split", DType::F32).attr("num_split", 2);
    fails(&split, &[axis(1), a.clone()], "Number of ways to split should evenly divide the split dimension");
    fails(&split, &[axis(2), a.clone()], "-input rank(-2) <= split_dim < input rank (2), but got 2");
    let split_v = typed("SplitV", DType::F32).attr("Tlen", DType::I32).attr("num_split", 2);
    fails(&split_v, &[a.clone(), i32s(&[1, 3]), axis(1)], "Determined shape must either match input shape");
    fails(&split_v, &[a, i32s(&[-1, -1]), axis(1)], "There can only be one -1 in the input.");
}

#[test]
fn pack_and_unpack() {
    for dtype in SIZES.into_iter().chain([DType::I32]) {
        for (dims, axis, n) in [
            (&[][..], 0i64, 3usize),
            (&[5], 0, 2),
            (&[5], 1, 3),
            (&[3, 4], -1, 2),
            (&[3, 4], 1, 5),
            (&[0], 0, 2),
            (&[2], 0, 1),
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
            check(&typed("Pack", dtype).attr("axis", axis).attr("N", n as i64), &parts, std::slice::from_ref(&whole));
            if dtype != DType::I32 {
                check(&typed("Unpack", dtype).attr("axis", axis).attr("num", n as i64), &[whole], &parts);
            }
        }
    }
    let (a, b) = (data(DType::F32, &[2], 0), data(DType::F32, &[3], 0));
    let node = typed("Pack", DType::F32).attr("axis", 0).attr("N", 2);
    fails(&node, &[a.clone(), b], "Shapes of all inputs must match: values[0].shape = [2] != values[1].shape = [3]");
    fails(&typed("Pack", DType::F32).attr("axis", 2).attr("N", 1), std::slice::from_ref(&a), "axis = 2 not in [-2, 2)");
    fails(
        &typed("Unpack", DType::F32).attr("axis", 0).attr("num", 3),
        &[a],
        "Input shape axis 0 must equal 3, got shape [2]",
    );
}

#[test]
fn fills_and_ranges() {
    for dtype in SIZES {
        for dims in [&[][..], &[0], &[7], &[3, 5, 2]] {
            let value = data(dtype, &[], 30);
            let shape: Vec<i64> = dims.iter().map(|n| *n as i64).collect();
            let want = reference(&value, dims, |_| Some(vec![]));
            let node = typed("Fill", dtype).attr("index_type", DType::I32);
            check(&node, &[i32s(&shape), value], &[want]);
            let x = data(dtype, dims, 31);
            check(&typed("ZerosLike", dtype), std::slice::from_ref(&x), &[reference(&x, dims, |_| None)]);
        }
    }
    let ones = |dtype: DType| {
        let got = run(&mut session(), &typed("OnesLike", dtype), &[data(dtype, &[3], 0)]).unwrap().remove(0);
        got.to_f64()
    };
    for dtype in
        [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I64, DType::U8, DType::I16, DType::U32, DType::Bool]
    {
        assert_eq!(ones(dtype), [1.0; 3], "{dtype}");
    }
    let complex = run(&mut session(), &typed("OnesLike", DType::C64), &[data(DType::C64, &[2], 0)]).unwrap();
    assert_eq!(complex[0].bytes, bytemuck::cast_slice::<f32, u8>(&[1.0, 0.0, 1.0, 0.0]));

    let range = |dtype: DType, values: [f64; 3]| {
        let scalar = |v: f64| match dtype {
            DType::I64 => HostTensor::i64(&[], &[v as i64]),
            _ => HostTensor::floats(dtype, &[], &[v]),
        };
        run(&mut session(), &Node::new("Range").attr("Tidx", dtype), &values.map(scalar)).map(|t| t[0].to_f64())
    };
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16, DType::I64] {
        assert_eq!(range(dtype, [1.0, 8.0, 3.0]).unwrap(), [1.0, 4.0, 7.0], "{dtype}");
        assert_eq!(range(dtype, [5.0, -1.0, -2.0]).unwrap(), [5.0, 3.0, 1.0], "{dtype}");
        assert_eq!(range(dtype, [2.0, 2.0, 1.0]).unwrap(), [0.0; 0], "{dtype}");
        assert!(
            matches!(range(dtype, [2.0, 1.0, 1.0]), Err(Error::InvalidArgument(m)) if m.contains("Requires start <= limit"))
        );
        assert!(
            matches!(range(dtype, [2.0, 1.0, 0.0]), Err(Error::InvalidArgument(m)) if m.contains("Requires delta != 0"))
        );
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
    let got = run(&mut session(), &typed("Transpose", DType::F32), &[x.clone(), i32s(&[1, 0])]).unwrap();
    for i in [0, 1, 2, n / 2, n - 2, n - 1] {
        let (r, c) = (i / 2, i % 2);
        assert_eq!(got[0].bytes[i * 4..][..4], x.bytes[(c * (n / 2) + r) * 4..][..4], "element {i}");
    }
}

/// Source and destination exceed the largest binding: the walk is cut into windows.
#[test]
fn moves_beyond_one_binding() {
    let mut session = session();
    let limit = session.device.capabilities().max_binding;
    if limit > 1 << 30 {
        return; // only adapters with small bindings can show it in reasonable time
    }
    let rows = 5000;
    let columns = (limit as usize / 4 / rows) + 37;
    let x = data(DType::F32, &[rows, columns], 1);
    let element = |t: &HostTensor, i: usize| t.bytes[i * 4..][..4].to_vec();
    let got = run(&mut session, &typed("Transpose", DType::F32), &[x.clone(), i32s(&[1, 0])]).unwrap().remove(0);
    for i in (0..rows * columns).step_by(9973) {
        assert!(element(&got, i) == element(&x, (i % rows) * columns + i / rows), "transposed element {i}");
    }
    let slice = [x.clone(), i32s(&[1, 1]), i32s(&[-1, -1])];
    let got = run(&mut session, &typed("Slice", DType::F32), &slice).unwrap().remove(0);
    for i in (0..(rows - 1) * (columns - 1)).step_by(9973) {
        let (r, c) = (i / (columns - 1), i % (columns - 1));
        assert!(element(&got, i) == element(&x, (r + 1) * columns + c + 1), "sliced element {i}");
    }
    let tile = typed("Tile", DType::F32).attr("Tmultiples", DType::I32);
    let got = run(&mut session, &tile, &[data(DType::F32, &[1001], 2), i32s(&[40_000])]).unwrap().remove(0);
    let small = data(DType::F32, &[1001], 2);
    for i in (0..1001 * 40_000).step_by(9973) {
        assert!(element(&got, i) == element(&small, i % 1001), "tiled element {i}");
    }
    let paddings = HostTensor::i32(&[2, 2], &[1, 0, 0, 1]);
    let pad = typed("Pad", DType::F32).attr("Tpaddings", DType::I32);
    let got = run(&mut session, &pad, &[x.clone(), paddings]).unwrap().remove(0);
    for i in (0..(rows + 1) * (columns + 1)).step_by(997) {
        let (r, c) = (i / (columns + 1), i % (columns + 1));
        let want = if r == 0 || c == columns { vec![0; 4] } else { element(&x, (r - 1) * columns + c) };
        assert!(element(&got, i) == want, "padded element {i}");
    }
}

/// The packed diagonals of a matrix: for each diagonal from `high` down, (row, column) of each slot or nothing.
fn slots(rows: usize, columns: usize, low: i64, high: i64, align: &str) -> Vec<Vec<Option<(usize, usize)>>> {
    let length = |k: i64| (rows as i64 + k.min(0)).min(columns as i64 - k.max(0)) as usize;
    let longest = (low..=high).map(length).max().unwrap();
    let (above, below) = align.split_once('_').unwrap();
    (low..=high)
        .rev()
        .map(|k| {
            let pad = if (if k >= 0 { above } else { below }) == "LEFT" { 0 } else { longest - length(k) };
            let at = |slot: usize| slot.checked_sub(pad).filter(|i| *i < length(k));
            let place = |i: usize| (i + (-k).max(0) as usize, i + k.max(0) as usize);
            (0..longest).map(|slot| at(slot).map(place)).collect()
        })
        .collect()
}

#[test]
fn diagonals() {
    for dtype in SIZES {
        for align in ["LEFT_LEFT", "LEFT_RIGHT", "RIGHT_LEFT", "RIGHT_RIGHT"] {
            for (low, high) in [(0i64, 0i64), (1, 1), (-1, 2), (-3, -1), (2, 4), (-3, 4)] {
                let (rows, columns, size) = (4, 5, dtype.size());
                let x = data(dtype, &[2, rows, columns], 1);
                let (background, base) = (data(dtype, &[], 2), data(dtype, &[2, rows, columns], 3));
                let slots = slots(rows, columns, low, high, align);
                let longest = slots[0].len();
                let (mut packed, mut built, mut set) =
                    (Vec::new(), background.bytes.repeat(2 * 20), base.bytes.clone());
                for b in 0..2 {
                    for slot in slots.iter().flatten() {
                        let Some((r, c)) = slot else {
                            packed.extend_from_slice(&background.bytes);
                            continue;
                        };
                        let at = ((b * rows + r) * columns + c) * size;
                        packed.extend_from_slice(&x.bytes[at..][..size]);
                        built[at..][..size].copy_from_slice(&x.bytes[at..][..size]);
                        set[at..][..size].copy_from_slice(&x.bytes[at..][..size]);
                    }
                }
                let dims = if low == high { vec![2, longest] } else { vec![2, slots.len(), longest] };
                let packed = HostTensor { dtype, dims: dims.as_slice().into(), bytes: packed };
                let matrix = |bytes| HostTensor { dtype, dims: [2, rows, columns].as_slice().into(), bytes };
                let k = HostTensor::i32(&[2], &[low as i32, high as i32]);
                let node = |op: &str| typed(op, dtype).attr("align", align);
                check(&node("MatrixDiagPartV3"), &[x, k.clone(), background.clone()], std::slice::from_ref(&packed));
                let scalar = |n: usize| HostTensor::i32(&[], &[n as i32]);
                let inputs = [packed.clone(), k.clone(), scalar(rows), scalar(columns), background];
                check(&node("MatrixDiagV3"), &inputs, &[matrix(built)]);
                check(&node("MatrixSetDiagV3"), &[base, packed, k], &[matrix(set)]);
            }
        }
        let x = data(dtype, &[2, 4, 5], 4);
        for (lower, upper) in [(0i64, 0i64), (-1, 1), (2, -1)] {
            let kept = |r: usize, c: usize| {
                (lower < 0 || r as i64 - c as i64 <= lower) && (upper < 0 || c as i64 - r as i64 <= upper)
            };
            let want = reference(&x, &[2, 4, 5], |c| kept(c[1], c[2]).then(|| c.to_vec()));
            let number = |n: i64| HostTensor::i64(&[], &[n]);
            check(&typed("MatrixBandPart", dtype), &[x.clone(), number(lower), number(upper)], &[want]);
        }
        if dtype != DType::U8 && dtype != DType::C128 {
            let x = data(dtype, &[2, 3], 5);
            let square = reference(&x, &[2, 3, 2, 3], |c| (c[..2] == c[2..]).then(|| c[..2].to_vec()));
            check(&typed("Diag", dtype), std::slice::from_ref(&x), std::slice::from_ref(&square));
            check(&typed("DiagPart", dtype), &[square], &[x]);
        }
    }
    let x = data(DType::F32, &[3, 3], 0);
    let k = HostTensor::i32(&[2], &[2, 1]);
    let node = typed("MatrixDiagPartV3", DType::F32).attr("align", "RIGHT_LEFT");
    fails(&node, &[x, k, data(DType::F32, &[], 0)], "must not be larger than upper_diag_index: 2 > 1");
}

#[test]
fn blocks_of_space() {
    for dtype in SIZES {
        let x = data(dtype, &[2, 4, 6, 8], 1);
        let node = |op: &str| typed(op, dtype).attr("block_size", 2).attr("data_format", "NHWC");
        let want = reference(&x, &[2, 8, 12, 2], |c| {
            Some(vec![c[0], c[1] / 2, c[2] / 2, (c[1] % 2 * 2 + c[2] % 2) * 2 + c[3]])
        });
        check(&node("DepthToSpace"), std::slice::from_ref(&x), std::slice::from_ref(&want));
        check(&node("SpaceToDepth"), &[want], std::slice::from_ref(&x));
        let paddings = HostTensor::i32(&[2, 2], &[1, 1, 0, 3]);
        let batched = reference(&x, &[12, 3, 3, 8], |c| {
            let (block, b) = (c[0] / 2, c[0] % 2);
            let (h, w) = ((c[1] * 2 + block / 3).checked_sub(1)?, c[2] * 3 + block % 3);
            (h < 4 && w < 6).then(|| vec![b, h, w, c[3]])
        });
        let node = |op: &str| typed(op, dtype).attr("Tblock_shape", DType::I32);
        check(&node("SpaceToBatchND"), &[x.clone(), i32s(&[2, 3]), paddings.clone()], std::slice::from_ref(&batched));
        check(&node("BatchToSpaceND"), &[batched, i32s(&[2, 3]), paddings], &[x]);
    }
}

#[test]
fn mirrored_gradients_flow_back() {
    for (mode, skip) in [("SYMMETRIC", 0i64), ("REFLECT", 1)] {
        for pads in [[(2, 1), (0, 3)], [(0, 0), (3, 2)], [(2, 2), (0, 0)], [(0, 0), (0, 0)]] {
            let dims = [3usize, 5];
            let out: Vec<usize> = dims.iter().zip(pads).map(|(n, (a, b))| n + (a + b) as usize).collect();
            let n = out.iter().product::<usize>();
            let values: Vec<f64> = (0..n).map(|i| ((i * 7) % 31) as f64).collect();
            let mut sums = vec![0.0; 15];
            for (c, v) in coordinates(&out).iter().zip(&values) {
                let source: Vec<usize> = (0..2)
                    .map(|d| {
                        let (k, n) = (c[d] as i64 - i64::from(pads[d].0), dims[d] as i64);
                        let k = if k < 0 { -k - 1 + skip } else { k };
                        (if k >= n { 2 * n - 1 - skip - k } else { k }) as usize
                    })
                    .collect();
                sums[flat(&dims, &source)] += v;
            }
            let flat: Vec<i32> = pads.iter().flat_map(|(a, b)| [*a, *b]).collect();
            for dtype in [DType::F32, DType::F16, DType::BF16, DType::F64] {
                let node = typed("MirrorPadGrad", dtype).attr("Tpaddings", DType::I32).attr("mode", mode);
                let inputs = [HostTensor::floats(dtype, &out, &values), HostTensor::i32(&[2, 2], &flat)];
                check(&node, &inputs, &[HostTensor::floats(dtype, &dims, &sums)]);
            }
        }
    }
}

#[test]
fn slices_are_assigned() {
    let entries = [Entry::Range(Some(-1), Some(0), -2), Entry::Range(Some(1), None, 3)];
    for dtype in SIZES.into_iter().chain([DType::I32]) {
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
        check(&node, &[x.clone(), b.clone(), e.clone(), s.clone(), value.clone()], std::slice::from_ref(&want));
        if dtype != DType::I32 {
            let mut session = session();
            let variable = session.variable(&x).unwrap();
            let (node, _) = strided(typed("ResourceStridedSliceAssign", dtype), &entries);
            let inputs = [b, e, s, value].map(Input::from);
            let inputs: Vec<Input> = [Input::Variable(variable)].into_iter().chain(inputs).collect();
            session.run(&node, &inputs).unwrap();
            assert!(session.variable_value(variable).unwrap().bytes == want.bytes, "{dtype}");
        }
    }
}
