//! Boxes at positions that only the device knows.

use super::*;

/// The position of a box of `size` that is requested at `start`.
fn clamped(dims: &[usize], size: &[usize], start: &[i64]) -> Vec<usize> {
    (0..dims.len()).map(|d| start[d].clamp(0, (dims[d] - size[d]) as i64) as usize).collect()
}

#[test]
fn dynamic_slices_read_and_write_boxes() {
    let cases: [(&[usize], &[usize], &[i64]); 9] = [
        (&[2, 9, 4, 8], &[2, 1, 4, 8], &[0, 6, 0, 0]),
        (&[3, 5, 7], &[1, 5, 7], &[1, 3, -3]),
        (&[5, 7], &[2, 3], &[1, 4]),
        (&[5, 7], &[2, 3], &[-9, 400]),
        (&[5, 7], &[5, 7], &[3, 3]),
        (&[33], &[9], &[5]),
        (&[2, 3, 2, 1, 2, 2, 3, 2], &[1, 2, 2, 1, 1, 2, 2, 1], &[1, 1, 1, 1, 0, 0, 1, 1]),
        (&[3, 4], &[0, 2], &[1, 1]),
        (&[], &[], &[]),
    ];
    for dtype in session().supported(SIZES) {
        for (dims, size, start) in cases {
            let (x, value) = (data(dtype, dims, 1), data(dtype, size, 2));
            let first = clamped(dims, size, start);
            for places in [i32s(start), HostTensor::i64(&[start.len()], start)] {
                let node = |op| typed(op, dtype).attr("Tindices", places.dtype);
                let sizes: Vec<i64> = size.iter().map(|n| *n as i64).collect();
                let sizes = match places.dtype {
                    DType::I32 => i32s(&sizes),
                    _ => HostTensor::i64(&[sizes.len()], &sizes),
                };
                let within = reference(&x, size, |c| {
                    Some(c.iter().zip(&first).map(|(c, f)| c + f).collect())
                });
                check(&node("XlaDynamicSlice"), &[x.clone(), places.clone(), sizes], &[within]);
                let mut want = x.clone();
                let bytes = dtype.size();
                for (i, c) in coordinates(size).iter().enumerate() {
                    let at: Vec<usize> = c.iter().zip(&first).map(|(c, f)| c + f).collect();
                    let at = flat(dims, &at) * bytes;
                    want.bytes[at..][..bytes].copy_from_slice(&value.bytes[i * bytes..][..bytes]);
                }
                let inputs = [x.clone(), value.clone(), places.clone()];
                check(&node("XlaDynamicUpdateSlice"), &inputs, &[want]);
            }
        }
    }
}

#[test]
fn places_beyond_32_bits_are_clamped() {
    let x = data(DType::F32, &[6], 1);
    let node = typed("XlaDynamicSlice", DType::F32).attr("Tindices", DType::I64);
    let sizes = HostTensor::i64(&[1], &[2]);
    for (start, first) in [(1 << 32, 4), (-(1 << 32), 0), ((1 << 32) + 1, 4), (i64::MIN + 1, 0)] {
        let inputs = [x.clone(), HostTensor::i64(&[1], &[start]), sizes.clone()];
        let want = reference(&x, &[2], |c| Some(vec![c[0] + first]));
        check(&node, &inputs, &[want]);
    }
}

#[test]
fn dynamic_slices_are_checked() {
    let x = data(DType::F32, &[3, 4], 1);
    let read = typed("XlaDynamicSlice", DType::F32).attr("Tindices", DType::I32);
    for (start, sizes, message) in [
        (i32s(&[1]), i32s(&[2, 2]), "mismatched number of slice sizes (2) and number of start"),
        (i32s(&[1, 1]), i32s(&[4, 2]), "has slice size 4 greater than dimension size 3"),
        (i32s(&[1, 1]), i32s(&[-1, 2]), "has negative size index to dynamic slice: -1"),
    ] {
        fails(&read, &[x.clone(), start, sizes], message);
    }
    let write = typed("XlaDynamicUpdateSlice", DType::F32).attr("Tindices", DType::I32);
    for (dims, start, message) in [
        (&[2, 2][..], i32s(&[1]), "index must be a vector with length equal to the number of"),
        (&[2], i32s(&[1, 1]), "input shape is [3,4]; update shape is [2]"),
        (&[4, 2], i32s(&[1, 1]), "Update dim size 4 greater than dynamic slice dimension: 3."),
    ] {
        fails(&write, &[x.clone(), data(DType::F32, dims, 2), start], message);
    }
}

/// The cache with the update's elements for which the mask holds.
fn masked(x: &HostTensor, update: &HostTensor, mask: &HostTensor, begin: &[i64]) -> HostTensor {
    let mut want = x.clone();
    let bytes = x.dtype.size();
    for (i, c) in coordinates(&update.dims).iter().enumerate() {
        let of_mask: Vec<usize> =
            c.iter().zip(&mask.dims).map(|(c, n)| if *n == 1 { 0 } else { *c }).collect();
        if mask.bytes[flat(&mask.dims, &of_mask)] != 0 {
            let at: Vec<usize> = c.iter().zip(begin).map(|(c, b)| c + *b as usize).collect();
            let at = flat(&x.dims, &at) * bytes;
            want.bytes[at..][..bytes].copy_from_slice(&update.bytes[i * bytes..][..bytes]);
        }
    }
    want
}

fn bools(dims: &[usize]) -> HostTensor {
    let bytes: Vec<u8> = (0..dims.iter().product()).map(|i| (i % 3 != 1) as u8).collect();
    HostTensor::of(DType::Bool, dims, &bytes)
}

#[test]
fn masked_updates_write_where_the_mask_holds() {
    /// The dimensions of the tensor, of the update and of the mask, and the update's place.
    type Case = (&'static [usize], &'static [usize], &'static [usize], &'static [i64]);
    let cases: [Case; 9] = [
        // A token's row in a cache, of one sequence and of several.
        (&[1, 9, 2, 8], &[1, 1, 2, 8], &[1, 1, 1, 1], &[0, 6, 0, 0]),
        (&[4, 9, 2, 8], &[4, 1, 2, 8], &[4, 1, 1, 1], &[0, 8, 0, 0]),
        (&[3, 9, 2, 8], &[3, 2, 2, 8], &[3, 2, 1, 1], &[0, 0, 0, 0]),
        // A mask of heads, of single elements, and rows of odd lengths.
        (&[2, 5, 3, 4], &[2, 1, 3, 4], &[2, 1, 3, 1], &[0, 2, 0, 0]),
        (&[2, 5, 4], &[2, 2, 4], &[1, 2, 4], &[0, 3, 0]),
        (&[2, 5, 3], &[1, 2, 3], &[1, 2, 1], &[1, 3, 0]),
        (&[5, 7], &[2, 3], &[2, 3], &[1, 4]),
        (&[3, 4], &[0, 2], &[1, 1], &[1, 1]),
        (&[6], &[6], &[6], &[0]),
    ];
    let types = [DType::F16, DType::BF16, DType::F32, DType::F64];
    for dtype in session().supported(types) {
        for (dims, size, of_mask, begin) in cases {
            let (x, update, mask) = (data(dtype, dims, 1), data(dtype, size, 2), bools(of_mask));
            let want = masked(&x, &update, &mask, begin);
            let node = typed("_WgpuMaskedUpdateSlice", dtype);
            check(&node, &[x, mask, update, i32s(begin)], &[want]);
        }
    }
}

#[test]
fn masked_updates_are_checked() {
    let node = typed("_WgpuMaskedUpdateSlice", DType::F32);
    let x = data(DType::F32, &[3, 4], 1);
    for (size, of_mask, begin, message) in [
        (&[1, 4][..], &[1, 1][..], i32s(&[3, 0]), "Expected size[0] in [0, 0], but got 1"),
        (&[1, 4], &[1, 1], i32s(&[-1, 0]), "Expected begin[0] in [0, 3], but got -1"),
        (&[1, 4], &[1, 1], i32s(&[0]), "an update of shape [1,4] at [0]"),
        (&[1, 4], &[2, 1], i32s(&[0, 0]), "a mask of shape [2,1] for an update of shape [1,4]"),
        (&[1, 4], &[1, 3], i32s(&[0, 0]), "ncompatible shapes"),
    ] {
        fails(&node, &[x.clone(), bools(of_mask), data(DType::F32, size, 2), begin], message);
    }
}
