//! Reductions against the rows' references in f64: every row, type, set of axes and style.

use tensorflow_wgpu::device::Profile;
use tensorflow_wgpu::dtype::DType::{self, *};
use tensorflow_wgpu::kernels::reduce::integers::INTEGER_REDUCTIONS;
use tensorflow_wgpu::kernels::reduce::table::{REDUCTIONS, Reduction};
use tensorflow_wgpu::local::{Node, Session};
use tensorflow_wgpu::{Error, HostTensor};

/// Sessions on the adapter as it is, and under a GPU's profile.
fn sessions() -> [Session; 2] {
    let shared = Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers");
    [shared, Session::under(Profile::NVIDIA).unwrap()]
}

/// Numbers in [-1, 1), or small integers, or bools, that repeat with a long period.
fn values(dtype: DType, n: usize, seed: u32) -> Vec<f64> {
    let mut state = u64::from(seed) * 2 + 1;
    let mut next = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1u64 << 24) as f64
    };
    (0..n)
        .map(|_| match dtype {
            Bool => f64::from(u8::from(next() < 0.5)),
            U8 | U16 | U32 | U64 => (next() * 19.0).floor(),
            _ if dtype.is_integer() => (next() * 19.0).floor() - 9.0,
            F16 => half::f16::from_f64(next() * 2.0 - 1.0).to_f64(),
            BF16 => half::bf16::from_f64(next() * 2.0 - 1.0).to_f64(),
            F32 => f64::from((next() * 2.0 - 1.0) as f32),
            _ => next() * 2.0 - 1.0,
        })
        .collect()
}

fn tensor(dtype: DType, dims: &[usize], v: &[f64]) -> HostTensor {
    match dtype {
        Bool => HostTensor::bool(dims, &v.iter().map(|v| *v != 0.0).collect::<Vec<_>>()),
        I32 => HostTensor::i32(dims, &v.iter().map(|v| *v as i32).collect::<Vec<_>>()),
        I64 => HostTensor::i64(dims, &v.iter().map(|v| *v as i64).collect::<Vec<_>>()),
        _ if dtype.is_integer() => {
            integers(dtype, dims, &v.iter().map(|v| *v as i128).collect::<Vec<_>>())
        }
        _ => HostTensor::floats(dtype, dims, v),
    }
}

/// Groups the elements by their kept coordinates, in the output's order.
fn gather(dims: &[usize], axes: &[usize], v: &[f64]) -> Vec<Vec<f64>> {
    let outputs: usize =
        dims.iter().enumerate().filter(|(d, _)| !axes.contains(d)).map(|(_, n)| n).product();
    let mut runs = vec![Vec::new(); outputs];
    for (i, x) in v.iter().enumerate() {
        let (mut rest, mut at, mut scale) = (i, 0, 1);
        for d in (0..dims.len()).rev() {
            if !axes.contains(&d) {
                at += rest % dims[d] * scale;
                scale *= dims[d];
            }
            rest /= dims[d];
        }
        runs[at].push(*x);
    }
    runs
}

/// Units in the last place of the type, as a share of the magnitude.
fn epsilon(dtype: DType) -> f64 {
    match dtype {
        F16 => 1.0 / 1024.0,
        BF16 => 1.0 / 128.0,
        F32 => 4e-6,
        F64 => 1e-13,
        _ => 0.0,
    }
}

#[track_caller]
fn assert_close(dtype: DType, got: &[f64], wanted: &[f64], scale: &[f64], context: &str) {
    assert_eq!(got.len(), wanted.len(), "{context}");
    for (i, ((g, w), s)) in got.iter().zip(wanted).zip(scale).enumerate() {
        // The value that the type can hold: infinity beyond its range.
        let rounded = match dtype {
            F16 => half::f16::from_f64(*w).to_f64(),
            BF16 => half::bf16::from_f64(*w).to_f64(),
            F32 => f64::from(*w as f32),
            _ => *w,
        };
        let tolerance = epsilon(dtype) * s.max(w.abs()) + if dtype == F16 { 1e-7 } else { 1e-30 };
        assert!(
            (g - w).abs() <= tolerance || *g == rounded || (g.is_nan() && w.is_nan()),
            "{context} {dtype}: output {i} is {g}, expected {w} ± {tolerance}"
        );
    }
}

fn node(row: &Reduction, dtype: DType, index: DType, keep_dims: bool) -> Node {
    let node = Node::new(row.op);
    if row.op == "L2Loss" {
        return node.attr("T", dtype);
    }
    node.attr("T", dtype).attr("Tidx", index).attr("keep_dims", keep_dims)
}

fn check(session: &mut Session, row: &Reduction, dtype: DType, dims: &[usize], axes: &[usize]) {
    let mut v = values(dtype, dims.iter().product(), axes.len() as u32 + dims.len() as u32);
    if row.op == "Prod" && dtype.is_integer() {
        // Powers of two that do not overflow.
        v.iter_mut().for_each(|v| {
            *v = if *v >= 9.0 {
                2.0
            } else if *v < 0.0 {
                -1.0
            } else {
                1.0
            }
        });
    }
    check_values(session, row, dtype, dims, axes, &v);
}

fn check_values(
    session: &mut Session,
    row: &Reduction,
    dtype: DType,
    dims: &[usize],
    axes: &[usize],
    v: &[f64],
) {
    let x = tensor(dtype, dims, v);
    let indices: Vec<i64> =
        axes.iter().map(|a| *a as i64 - if a % 2 == 1 { dims.len() as i64 } else { 0 }).collect();
    let index = HostTensor::i64(&[axes.len()], &indices);
    let context = format!("{} {dims:?} over {axes:?}, misaligned by {}", row.op, session.misalign);
    let out = session
        .run(&node(row, dtype, I64, false), &[x.into(), index.into()])
        .expect(&context)
        .remove(0);
    let kept: Vec<usize> = (0..dims.len()).filter(|d| !axes.contains(d)).map(|d| dims[d]).collect();
    assert_eq!(out.dims[..], kept, "{context}");
    let runs = gather(dims, axes, v);
    let wanted: Vec<f64> = runs.iter().map(|r| (row.reference)(r)).collect();
    // A sum's error is relative to the sum of magnitudes.
    let magnitude =
        |r: &Vec<f64>| (row.reference)(&r.iter().map(|v| v.abs()).collect::<Vec<_>>()).abs();
    let scale: Vec<f64> =
        runs.iter().map(magnitude).map(|s| if s.is_finite() { s } else { 0.0 }).collect();
    assert_close(dtype, &out.to_f64(), &wanted, &scale, &context);
}

fn supported(session: &Session, types: &[DType]) -> Vec<DType> {
    types.iter().copied().filter(|t| session.runs(*t)).collect()
}

const ALL_AXES: [&[usize]; 8] = [&[0], &[1], &[2], &[0, 1], &[1, 2], &[0, 2], &[0, 1, 2], &[2, 0]];

#[test]
fn every_row_and_type_over_all_axes() {
    for mut session in sessions() {
        for row in REDUCTIONS.iter().filter(|r| r.op != "L2Loss") {
            for dtype in supported(&session, row.types) {
                for axes in ALL_AXES {
                    check(&mut session, row, dtype, &[5, 7, 3], axes);
                }
                session.misalign = 1;
                check(&mut session, row, dtype, &[9, 131], &[1]);
                check(&mut session, row, dtype, &[131, 9], &[0]);
                session.misalign = 0;
                check(&mut session, row, dtype, &[1, 6, 1], &[0, 2]);
                check(&mut session, row, dtype, &[], &[]);
            }
        }
    }
}

#[test]
fn empty_reductions_give_the_identity() {
    for mut session in sessions() {
        for row in REDUCTIONS.iter().filter(|r| r.op != "L2Loss") {
            for dtype in supported(&session, row.types) {
                check(&mut session, row, dtype, &[3, 0], &[0]);
                if dtype.is_integer() && matches!(row.op, "Max" | "Min") {
                    continue;
                }
                check(&mut session, row, dtype, &[3, 0, 2], &[1]);
                check(&mut session, row, dtype, &[0], &[0]);
            }
        }
        let extreme = |session: &mut Session, op| {
            let node = Node::new(op).attr("T", I64).attr("Tidx", I32).attr("keep_dims", false);
            let inputs = [HostTensor::i64(&[0], &[]).into(), HostTensor::i32(&[1], &[0]).into()];
            session.run(&node, &inputs).unwrap()[0].values::<i64>()[0]
        };
        assert_eq!(extreme(&mut session, "Max"), i64::MIN);
        assert_eq!(extreme(&mut session, "Min"), i64::MAX);
    }
}

#[test]
fn ranks_up_to_six() {
    let dims = [2, 3, 4, 5, 3, 2];
    for mut session in sessions() {
        for mask in 0..64u32 {
            let axes: Vec<usize> = (0..6).filter(|d| mask >> d & 1 == 1).collect();
            check(&mut session, Reduction::of("Sum"), F32, &dims, &axes);
            check(&mut session, Reduction::of("Max"), F16, &dims, &axes);
        }
    }
}

#[test]
fn rows_and_columns_of_every_length() {
    for mut session in sessions() {
        for row in ["Sum", "Mean", "Max"].map(Reduction::of) {
            for n in [1, 2, 15, 16, 17, 63, 65, 255, 257, 1023, 1025, 5000, 70_001] {
                check(&mut session, row, F32, &[3, n], &[1]);
                check(&mut session, row, F32, &[n, 3], &[0]);
                check(&mut session, row, BF16, &[5, n], &[1]);
            }
        }
        for row in ["All", "Any"].map(Reduction::of) {
            for n in [63, 257, 5000] {
                // All elements but one are equal: that one must be found.
                for at in [0, n / 2, n - 1] {
                    let mut v = vec![f64::from(u8::from(row.op == "All")); 3 * n];
                    v[n + at] = 1.0 - v[n + at];
                    check_values(&mut session, row, Bool, &[3, n], &[1], &v);
                }
            }
        }
    }
}

#[test]
fn vec4s_of_rows_and_columns() {
    for mut session in sessions() {
        for dtype in [F32, F16] {
            for n in [4, 64, 1020, 20_000] {
                check(&mut session, Reduction::of("Sum"), dtype, &[3, n], &[1]);
            }
            // Columns of part of a subgroup's stretch, of one and of several; rows of one block,
            // and of segments.
            for (n, columns) in
                [(5, 36), (70, 4), (70, 100), (130, 260), (70, 1028), (6000, 36), (20_000, 4)]
            {
                for (misalign, op) in ["Mean", "Max"].into_iter().enumerate() {
                    session.misalign = misalign;
                    check(&mut session, Reduction::of(op), dtype, &[n, columns], &[0]);
                    check(&mut session, Reduction::of(op), dtype, &[2, n.min(100), columns], &[1]);
                    // Neither of the two axes behind the reduced one has whole vec4s.
                    check(&mut session, Reduction::of(op), dtype, &[n.min(100), 6, 10], &[0, 2]);
                }
                session.misalign = 0;
            }
        }
    }
}

#[test]
fn many_rows_and_long_rows() {
    for mut session in sessions() {
        check(&mut session, Reduction::of("Sum"), F32, &[300_000, 5], &[1]);
        check(&mut session, Reduction::of("Max"), F32, &[70_000, 17], &[1]);
        check(&mut session, Reduction::of("Mean"), F16, &[70_001, 20], &[1]);
        check(&mut session, Reduction::of("Sum"), F32, &[3, 1_000_000], &[1]);
        check(&mut session, Reduction::of("Sum"), F32, &[100_000, 7], &[0]);
    }
}

#[test]
fn sums_of_ten_million_stay_accurate() {
    let n = 10_000_000;
    let x: Vec<f32> = (0..n).map(|i| 0.1 + (i % 1000) as f32 * 1e-4).collect();
    let wanted: f64 = x.iter().map(|v| f64::from(*v)).sum();
    for mut session in sessions() {
        for (dims, axes) in [(vec![n], vec![0]), (vec![n / 10, 10], vec![0, 1])] {
            let node = node(Reduction::of("Sum"), F32, I32, true);
            let axis = HostTensor::i32(&[axes.len()], &axes);
            let out =
                session.run(&node, &[HostTensor::f32(&dims, &x).into(), axis.into()]).unwrap();
            assert_eq!(out[0].dims[..], vec![1; dims.len()]);
            let error = (out[0].to_f64()[0] - wanted).abs() / wanted;
            assert!(error < 1e-6, "relative error {error}");
        }
        let whole = Node::new("L2Loss").attr("T", F32);
        let out = session.run(&whole, &[HostTensor::f32(&[n], &x).into()]).unwrap();
        let wanted: f64 = x.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>() / 2.0;
        assert!(out[0].dims.is_empty());
        assert!((out[0].to_f64()[0] - wanted).abs() / wanted < 1e-6);
    }
}

#[test]
fn int64_is_exact() {
    for mut session in sessions() {
        let x: Vec<i64> = (0..1000).map(|i| i * 9_007_199_254_740_993 - (1 << 61)).collect();
        let node = node(Reduction::of("Sum"), I64, I32, false);
        let inputs = [HostTensor::i64(&[1000], &x).into(), HostTensor::i32(&[1], &[-1]).into()];
        let sum = x.iter().fold(0i64, |a, b| a.wrapping_add(*b));
        assert_eq!(session.run(&node, &inputs).unwrap()[0].values::<i64>(), [sum]);
    }
}

fn integers(dtype: DType, dims: &[usize], v: &[i128]) -> HostTensor {
    match dtype {
        I8 => HostTensor::of(dtype, dims, &v.iter().map(|v| *v as i8).collect::<Vec<_>>()),
        U8 => HostTensor::of(dtype, dims, &v.iter().map(|v| *v as u8).collect::<Vec<_>>()),
        I16 => HostTensor::of(dtype, dims, &v.iter().map(|v| *v as i16).collect::<Vec<_>>()),
        U16 => HostTensor::of(dtype, dims, &v.iter().map(|v| *v as u16).collect::<Vec<_>>()),
        U32 => HostTensor::of(dtype, dims, &v.iter().map(|v| *v as u32).collect::<Vec<_>>()),
        U64 => HostTensor::of(dtype, dims, &v.iter().map(|v| *v as u64).collect::<Vec<_>>()),
        _ => HostTensor::of(dtype, dims, &v.iter().map(|v| *v as i64).collect::<Vec<_>>()),
    }
}

/// The value that the type keeps of a number.
fn wrapped(dtype: DType, v: i128) -> i128 {
    let modulus = 1i128 << (8 * dtype.size());
    let low = v.rem_euclid(modulus);
    if dtype.is_signed_integer() && low >= modulus / 2 { low - modulus } else { low }
}

fn integers_of(t: &HostTensor) -> Vec<i128> {
    match t.dtype {
        I8 => t.values::<i8>().into_iter().map(i128::from).collect(),
        U8 => t.values::<u8>().into_iter().map(i128::from).collect(),
        I16 => t.values::<i16>().into_iter().map(i128::from).collect(),
        U16 => t.values::<u16>().into_iter().map(i128::from).collect(),
        U32 => t.values::<u32>().into_iter().map(i128::from).collect(),
        U64 => t.values::<u64>().into_iter().map(i128::from).collect(),
        _ => t.values::<i64>().into_iter().map(i128::from).collect(),
    }
}

/// The results of TensorFlow's CPU kernels on x86.
fn integer_reference(op: &str, dtype: DType, x: &[i128]) -> i128 {
    let wide = if dtype.is_signed_integer() { I64 } else { U64 };
    let sum = |x: &mut dyn Iterator<Item = i128>| x.fold(0, |a, b| wrapped(wide, a + b));
    match op {
        "Sum" => wrapped(dtype, sum(&mut x.iter().copied())),
        "Prod" => x.iter().fold(1, |a, b| wrapped(dtype, i128::wrapping_mul(a, *b))),
        "Max" => x.iter().copied().max().unwrap(),
        "Min" => x.iter().copied().min().unwrap(),
        "Mean" => wrapped(dtype, sum(&mut x.iter().copied()) / x.len() as i128),
        _ => {
            let squares =
                x.iter().fold(0, |a, b| wrapped(dtype, a + wrapped(dtype, b.wrapping_mul(*b))));
            match (squares < 0, dtype) {
                (true, I64) => i128::from(i64::MIN),
                (true, _) => 0,
                // From 2^53 on the root is that of a rounded number.
                (false, _) => (squares as f64).sqrt() as i128,
            }
        }
    }
}

#[test]
fn integers_wrap_and_truncate_as_on_the_cpu() {
    for mut session in sessions() {
        for row in INTEGER_REDUCTIONS {
            for dtype in supported(&session, row.types) {
                let mut state = 7u64;
                let mut next = || {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                    wrapped(dtype, i128::from(state >> (state >> 60)) * 0x1_0001)
                };
                for (rows, n) in [(40, 1), (7, 2), (5, 64), (3, 5000)] {
                    let x: Vec<i128> = (0..rows * n).map(|_| next()).collect();
                    session.misalign = n % 3;
                    for (dims, axis) in [([rows, n], 1), ([n, rows], 0)] {
                        let run = |r: usize| -> Vec<i128> {
                            let place = |k| if axis == 1 { r * n + k } else { k * rows + r };
                            (0..n).map(|k| x[place(k)]).collect()
                        };
                        let inputs = [
                            integers(dtype, &dims, &x).into(),
                            HostTensor::i32(&[1], &[axis]).into(),
                        ];
                        let node = node(row, dtype, I32, false);
                        let got = integers_of(&session.run(&node, &inputs).unwrap()[0]);
                        let wanted: Vec<i128> =
                            (0..rows).map(|r| integer_reference(row.op, dtype, &run(r))).collect();
                        assert_eq!(got, wanted, "{} {dtype} {dims:?} over {axis}", row.op);
                    }
                    session.misalign = 0;
                }
            }
        }
    }
}

#[test]
fn norms_just_below_a_square_round_as_a_double() {
    // s^2 is -7 modulo 2^64, so that s^2 + 2^2 + 1 + 1 is -1.
    let mut s = 1u64;
    for bit in 3..64 {
        if (s.wrapping_mul(s).wrapping_add(7) >> bit) & 1 == 1 {
            s = s.wrapping_add(1 << (bit - 1));
        }
    }
    assert_eq!(s.wrapping_mul(s).wrapping_add(6), u64::MAX);
    let row = INTEGER_REDUCTIONS.iter().find(|r| r.op == "EuclideanNorm" && r.types == [U64]);
    for mut session in sessions() {
        if !session.runs(U64) {
            continue;
        }
        for k in [2u64, 3000, 1 << 25, 1 << 26, (1 << 26) + 1, 1 << 27, (1 << 31) + 5, 1 << 32] {
            let x = [k, s, 2, 1, 1].map(i128::from);
            let inputs = [integers(U64, &[5], &x).into(), HostTensor::i32(&[1], &[0]).into()];
            let out = session.run(&node(row.unwrap(), U64, I32, false), &inputs).unwrap();
            let square = k.wrapping_mul(k).wrapping_sub(1);
            assert_eq!(out[0].values::<u64>(), [(square as f64).sqrt() as u64], "{k}");
        }
    }
}

#[test]
fn empty_reductions_of_integers_give_what_the_type_holds() {
    for mut session in sessions() {
        for row in INTEGER_REDUCTIONS {
            for dtype in supported(&session, row.types) {
                let inputs =
                    [integers(dtype, &[3, 0], &[]).into(), HostTensor::i32(&[1], &[1]).into()];
                let out = session.run(&node(row, dtype, I32, false), &inputs).unwrap();
                let bits = 8 * dtype.size() as u32;
                let signed = dtype.is_signed_integer();
                let wanted = match (row.op, signed) {
                    ("Prod", _) => 1,
                    ("Max", true) => -(1i128 << (bits - 1)),
                    ("Min", true) => (1i128 << (bits - 1)) - 1,
                    ("Min", false) => (1i128 << bits) - 1,
                    _ => 0,
                };
                assert_eq!(integers_of(&out[0]), [wanted; 3], "{} {dtype}", row.op);
            }
        }
    }
}

#[test]
fn nan_and_infinity() {
    for mut session in sessions() {
        for dtype in [F32, F16, BF16] {
            for n in [2, 40, 3000] {
                for at in [0, n / 2, n - 1] {
                    for special in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                        let mut v = values(dtype, 2 * n, 3);
                        v[n + at] = special;
                        for row in ["Max", "Min", "Sum"].map(Reduction::of) {
                            check_values(&mut session, row, dtype, &[2, n], &[1], &v);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn tensors_beyond_one_binding_are_reduced_in_windows() {
    let limit = 1 << 20;
    let session = &mut Session::binding(limit as u64).unwrap();
    let n = limit / 4 + 12_345;
    let x: Vec<f32> = (0..n).map(|i| (i % 16) as f32).collect();
    let sum = node(Reduction::of("Sum"), F32, I32, false);
    let axis = |a: &[i32]| HostTensor::i32(&[a.len()], a);
    let total: f64 = x.iter().map(|v| f64::from(*v)).sum();
    let got = session.run(&sum, &[HostTensor::f32(&[n], &x).into(), axis(&[0]).into()]).unwrap()[0]
        .to_f64()[0];
    assert!((got - total).abs() <= 1e-6 * total, "{got} {total}");
    let rows = n / 5;
    let got = session
        .run(&sum, &[HostTensor::f32(&[rows, 5], &x[..rows * 5]).into(), axis(&[1]).into()])
        .unwrap();
    for (i, g) in got[0].values::<f32>().into_iter().enumerate() {
        assert_eq!(g, x[i * 5..i * 5 + 5].iter().sum::<f32>(), "row {i}");
    }
    let got = session
        .run(&sum, &[HostTensor::f32(&[rows, 5], &x[..rows * 5]).into(), axis(&[0]).into()])
        .unwrap();
    for (k, g) in got[0].values::<f32>().into_iter().enumerate() {
        let wanted: f64 = x[..rows * 5].iter().skip(k).step_by(5).map(|v| f64::from(*v)).sum();
        assert!((f64::from(g) - wanted).abs() <= 1e-6 * wanted, "column {k}: {g} {wanted}");
    }
}

#[test]
fn single_rows_beyond_one_binding() {
    let session = &mut Session::binding(1 << 16).unwrap();
    for row in ["Sum", "Max", "All"].map(Reduction::of) {
        for dtype in supported(session, row.types) {
            for (dims, axes) in [
                (&[3, 70_001][..], &[1][..]),
                (&[2, 35_002, 2], &[1]),
                (&[5, 9001, 3], &[0, 2]),
                (&[2, 3, 35_001], &[1]),
                (&[70_001, 3], &[0]),
            ] {
                check(session, row, dtype, dims, axes);
            }
        }
    }
}

#[test]
fn axes_are_checked() {
    let session = &mut sessions()[0];
    let mut message = |dims: &[usize], axes: &[i32]| {
        let x = HostTensor::f32(dims, &vec![1.0; dims.iter().product()]);
        let axes = HostTensor::i32(&[axes.len()], axes);
        match session.run(&node(Reduction::of("Sum"), F32, I32, false), &[x.into(), axes.into()]) {
            Err(Error::InvalidArgument(m)) => m,
            other => panic!("{other:?}"),
        }
    };
    assert!(
        message(&[2, 3], &[2])
            .contains("Invalid reduction dimension (2 for input with 2 dimension(s)")
    );
    assert!(
        message(&[2, 3], &[-3])
            .contains("Invalid reduction dimension (-3 for input with 2 dimension(s)")
    );
    assert!(
        message(&[], &[0]).contains("Invalid reduction dimension (0 for input with 0 dimension(s)")
    );
    let twice = "Invalid reduction arguments: Axes contains duplicate dimension: 1";
    assert!(message(&[2, 3], &[1, -1]).contains(twice));
}
