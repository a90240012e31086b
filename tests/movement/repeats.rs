//! Broadcasts, tiles, reversals, rolls, pads.

use super::*;

#[test]
fn broadcast_and_tile() {
    for dtype in session().supported(SIZES) {
        for (dims, out) in [
            (&[][..], &[3][..]),
            (&[1, 3], &[2, 3]),
            (&[2, 1, 4], &[3, 2, 5, 4]),
            (&[3, 1], &[3, 8]),
            (&[2, 1, 3, 1], &[2, 2, 3, 12]),
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
        for (dims, multiples) in [
            (&[][..], &[][..]),
            (&[3], &[4]),
            (&[2, 3], &[1, 1]),
            (&[2, 3, 2], &[3, 1, 2]),
            (&[5], &[0]),
        ] {
            let x = data(dtype, dims, 6);
            let out: Vec<usize> =
                dims.iter().zip(multiples).map(|(n, m)| n * *m as usize).collect();
            let want =
                reference(&x, &out, |c| Some(c.iter().zip(dims).map(|(c, n)| c % n).collect()));
            let node = typed("Tile", dtype).attr("Tmultiples", DType::I32);
            check(&node, &[x, i32s(multiples)], &[want]);
        }
    }
    let x = data(DType::F32, &[2, 3], 0);
    fails(
        &typed("BroadcastTo", DType::F32),
        &[x.clone(), i32s(&[3, 3])],
        "Incompatible shapes: [2,3] vs. [3,3]",
    );
    let tile = typed("Tile", DType::F32).attr("Tmultiples", DType::I32);
    fails(
        &tile,
        &[x.clone(), i32s(&[1])],
        "Expected multiples argument to be a vector of length 2 but got length 1",
    );
    fails(&tile, &[x, i32s(&[1, -1])], "Expected multiples[1] >= 0, but got -1");
}

#[test]
fn reverse_and_roll() {
    for dtype in session().supported(SIZES) {
        for (dims, axes) in [
            (&[5][..], &[0][..]),
            (&[3, 4], &[1]),
            (&[3, 4, 2], &[0, -1]),
            (&[0, 4], &[0]),
            (&[3, 2], &[]),
            (&[6, 8], &[0, 1]),
        ] {
            let x = data(dtype, dims, 7);
            let reversed = |d: usize| {
                axes.contains(&(d as i64)) || axes.contains(&(d as i64 - dims.len() as i64))
            };
            let want = reference(&x, dims, |c| {
                Some(
                    (0..c.len())
                        .map(|d| if reversed(d) { dims[d] - 1 - c[d] } else { c[d] })
                        .collect(),
                )
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
                Some(
                    (0..c.len())
                        .map(|d| (c[d] as i64 - shifts[d]).rem_euclid(dims[d] as i64) as usize)
                        .collect(),
                )
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
    for dtype in session().supported(SIZES) {
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
            let out: Vec<usize> =
                dims.iter().zip(pads).map(|(n, (a, b))| n + (a + b) as usize).collect();
            let source = |c: &[usize]| -> Option<Vec<usize>> {
                (0..c.len())
                    .map(|d| c[d].checked_sub(pads[d].0 as usize).filter(|k| *k < dims[d]))
                    .collect()
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
            for (dims, pads) in [
                (&[4][..], &[(3, 2)][..]),
                (&[3, 5], &[(2, 1), (0, 4)]),
                (&[2, 3, 2], &[(0, 0), (2, 2), (0, 0)]),
            ] {
                let x = data(dtype, dims, 12);
                let flat: Vec<i32> = pads.iter().flat_map(|(a, b)| [*a, *b]).collect();
                let out: Vec<usize> =
                    dims.iter().zip(pads).map(|(n, (a, b))| n + (a + b) as usize).collect();
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
                let node =
                    typed("MirrorPad", dtype).attr("Tpaddings", DType::I32).attr("mode", mode);
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
    fails(
        &pad,
        &[x.clone(), HostTensor::i32(&[2, 2], &[0, 0, 0, -1])],
        "Paddings must be non-negative: 0 -1",
    );
    fails(
        &pad,
        &[x, HostTensor::i32(&[4], &[0, 0, 0, 0])],
        "paddings must be a matrix with 2 columns: [4]",
    );
}

#[test]
fn mirrored_gradients_flow_back() {
    for (mode, skip) in [("SYMMETRIC", 0i64), ("REFLECT", 1)] {
        for pads in [[(2, 1), (0, 3)], [(0, 0), (3, 2)], [(2, 2), (0, 0)], [(0, 0), (0, 0)]] {
            let dims = [3usize, 5];
            let out: Vec<usize> =
                dims.iter().zip(pads).map(|(n, (a, b))| n + (a + b) as usize).collect();
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
            for dtype in session().supported([DType::F32, DType::F16, DType::BF16, DType::F64]) {
                let node =
                    typed("MirrorPadGrad", dtype).attr("Tpaddings", DType::I32).attr("mode", mode);
                let inputs =
                    [HostTensor::floats(dtype, &out, &values), HostTensor::i32(&[2, 2], &flat)];
                check(&node, &inputs, &[HostTensor::floats(dtype, &dims, &sums)]);
            }
        }
    }
}
