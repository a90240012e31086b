//! Diagonals, and blocks of space.

use super::*;

/// The packed diagonals of a matrix: for each diagonal from `high` down, (row, column) of each slot
/// or nothing.
fn slots(
    rows: usize,
    columns: usize,
    low: i64,
    high: i64,
    align: &str,
) -> Vec<Vec<Option<(usize, usize)>>> {
    let length = |k: i64| (rows as i64 + k.min(0)).min(columns as i64 - k.max(0)) as usize;
    let longest = (low..=high).map(length).max().unwrap();
    let (above, below) = align.split_once('_').unwrap();
    (low..=high)
        .rev()
        .map(|k| {
            let pad = if (if k >= 0 { above } else { below }) == "LEFT" {
                0
            } else {
                longest - length(k)
            };
            let at = |slot: usize| slot.checked_sub(pad).filter(|i| *i < length(k));
            let place = |i: usize| (i + (-k).max(0) as usize, i + k.max(0) as usize);
            (0..longest).map(|slot| at(slot).map(place)).collect()
        })
        .collect()
}

#[test]
fn diagonals() {
    for dtype in session().supported(SIZES) {
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
                let dims =
                    if low == high { vec![2, longest] } else { vec![2, slots.len(), longest] };
                let packed = HostTensor { dtype, dims: dims.as_slice().into(), bytes: packed };
                let matrix =
                    |bytes| HostTensor { dtype, dims: [2, rows, columns].as_slice().into(), bytes };
                let k = HostTensor::i32(&[2], &[low as i32, high as i32]);
                let node = |op: &str| typed(op, dtype).attr("align", align);
                check(
                    &node("MatrixDiagPartV3"),
                    &[x, k.clone(), background.clone()],
                    std::slice::from_ref(&packed),
                );
                let scalar = |n: usize| HostTensor::i32(&[], &[n as i32]);
                let inputs = [packed.clone(), k.clone(), scalar(rows), scalar(columns), background];
                check(&node("MatrixDiagV3"), &inputs, &[matrix(built)]);
                check(&node("MatrixSetDiagV3"), &[base, packed, k], &[matrix(set)]);
            }
        }
        let x = data(dtype, &[2, 4, 5], 4);
        for (lower, upper) in [(0i64, 0i64), (-1, 1), (2, -1)] {
            let kept = |r: usize, c: usize| {
                (lower < 0 || r as i64 - c as i64 <= lower)
                    && (upper < 0 || c as i64 - r as i64 <= upper)
            };
            let want = reference(&x, &[2, 4, 5], |c| kept(c[1], c[2]).then(|| c.to_vec()));
            let number = |n: i64| HostTensor::i64(&[], &[n]);
            check(
                &typed("MatrixBandPart", dtype),
                &[x.clone(), number(lower), number(upper)],
                &[want],
            );
        }
        if dtype != DType::U8 && dtype != DType::C128 {
            let x = data(dtype, &[2, 3], 5);
            let square =
                reference(&x, &[2, 3, 2, 3], |c| (c[..2] == c[2..]).then(|| c[..2].to_vec()));
            check(&typed("Diag", dtype), std::slice::from_ref(&x), std::slice::from_ref(&square));
            check(&typed("DiagPart", dtype), &[square], &[x]);
        }
    }
    let x = data(DType::F32, &[3, 3], 0);
    let k = HostTensor::i32(&[2], &[2, 1]);
    let node = typed("MatrixDiagPartV3", DType::F32).attr("align", "RIGHT_LEFT");
    fails(
        &node,
        &[x, k, data(DType::F32, &[], 0)],
        "must not be larger than upper_diag_index: 2 > 1",
    );
}

/// Matrices beyond one binding are made range by range, also when a range ends within a row or a
/// word of packed elements follows it.
#[test]
fn diagonals_of_matrices_beyond_one_binding() {
    for dtype in session().supported(SIZES) {
        let (rows, columns) = (37, 41);
        let dims = [2, rows, columns];
        let (base, background) = (data(dtype, &dims, 1), data(dtype, &[], 2));
        let packed = data(dtype, &[2, 4, 37], 3);
        let k = HostTensor::i32(&[2], &[-1, 2]);
        let scalar = |n: usize| HostTensor::i32(&[], &[n as i32]);
        let number = |n: i64| HostTensor::i64(&[], &[n]);
        let node = |op: &str| typed(op, dtype).attr("align", "RIGHT_LEFT");
        let cases = [
            (
                node("MatrixDiagV3"),
                vec![packed.clone(), k.clone(), scalar(rows), scalar(columns), background],
            ),
            (node("MatrixSetDiagV3"), vec![base.clone(), packed, k]),
            (typed("MatrixBandPart", dtype), vec![base, number(3), number(-1)]),
        ];
        let profile = session().device.profile();
        let max_binding = (cases[0].1[0].bytes.len() as u64).next_multiple_of(256) + 1024;
        let capabilities = Capabilities { max_binding, ..profile.capabilities };
        let mut small = Session::under(Profile { capabilities, ..profile }).unwrap();
        for (node, inputs) in cases {
            let want = run(&mut session(), &node, &inputs).unwrap();
            assert!(want[0].bytes.len() as u64 > max_binding, "{dtype}");
            for misalign in [0, 1] {
                small.misalign = misalign;
                let got = run(&mut small, &node, &inputs);
                let got = got.unwrap_or_else(|e| panic!("{node:?} of {dtype}: {e}"));
                assert!(got[0].bytes == want[0].bytes, "{node:?} of {dtype} misaligned {misalign}");
            }
        }
    }
}

#[test]
fn blocks_of_space() {
    for dtype in session().supported(SIZES) {
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
        check(
            &node("SpaceToBatchND"),
            &[x.clone(), i32s(&[2, 3]), paddings.clone()],
            std::slice::from_ref(&batched),
        );
        check(&node("BatchToSpaceND"), &[batched, i32s(&[2, 3]), paddings], &[x]);
    }
}
