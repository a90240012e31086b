//! Transposes, plain and tiled.

use super::*;

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
        (&[8, 12], &[1, 0]),
        (&[8, 3, 5, 16], &[3, 1, 2, 0]),
        (&[4, 8, 6, 12], &[3, 2, 1, 0]),
        (&[3, 4, 5, 8], &[1, 2, 3, 0]),
    ];
    for dtype in session().supported(SIZES) {
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
    fails(
        &typed("Transpose", DType::F32),
        &[x.clone(), i32s(&[0, 2])],
        "2 is out of range [0 .. 2)",
    );
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
    for dtype in session().supported([DType::F32, DType::I64, DType::C128, DType::F16, DType::U8]) {
        for dims in [
            [1, 32, 32],
            [1, 33, 70],
            [3, 64, 47],
            [2, 100, 33],
            [3, 36, 48],
            [1, 4, 20],
            [1, 256, 260],
            [2, 304, 132],
        ] {
            let [b, m, n] = dims;
            let x = data(dtype, &dims, 2);
            let want = reference(&x, &[b, n, m], |c| Some(vec![c[0], c[2], c[1]]));
            let src = upload(&device, &x);
            let out = [b, n, m];
            let walk = Iteration::over(&out)
                .operand(&[(m * n) as i64, 1, n as i64], 0)
                .operand(&dense_strides(&out), 0);
            for tiling in [Tiling::Never, Tiling::Blocks, Tiling::Always] {
                let dst = upload(&device, &data(dtype, &out, 9));
                copy_strided_with(&device, &walk, &src, &dst, tiling).unwrap();
                assert!(download(&device, &dst) == want.bytes, "{dtype} {dims:?} {tiling:?}");
                device.deallocate(dst.address).unwrap();
            }
            device.deallocate(src.address).unwrap();
        }
    }
}

/// Elements that share words, by blocks where the sides are whole ones; rows that are single
/// windows.
#[test]
fn packed_transposes_beyond_one_binding() {
    let mut session = Session::binding(1 << 20).unwrap();
    for (dtype, [rows, columns]) in [
        (DType::F16, [5000, 260]),
        (DType::F16, [350_002, 3]),
        (DType::U8, [20_000, 64]),
        (DType::U8, [600_004, 3]),
    ] {
        let x = data(dtype, &[rows, columns], 1);
        let size = dtype.size();
        let op = typed("Transpose", dtype);
        let got = run(&mut session, &op, &[x.clone(), i32s(&[1, 0])]).unwrap().remove(0);
        assert_eq!(&*got.dims, [columns, rows]);
        for i in (0..rows * columns).step_by(97) {
            let from = (i % rows) * columns + i / rows;
            assert!(
                got.bytes[i * size..][..size] == x.bytes[from * size..][..size],
                "{dtype} element {i}"
            );
        }
    }
}
