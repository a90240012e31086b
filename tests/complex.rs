//! Complex ops against references in f64: every row and type, conversions, the conjugate transpose,
//! reductions and segment sums.

use tensorflow_wgpu::HostTensor;
use tensorflow_wgpu::dtype::DType::{self, *};
use tensorflow_wgpu::kernels::complex::{COMPLEX, reference, table};
use tensorflow_wgpu::kernels::scalar::row::{Complex, Reference, Row, Shapes};
use tensorflow_wgpu::layout::{Iteration, broadcast_dims};
use tensorflow_wgpu::local::{Node, Session};

fn session() -> Session {
    Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers")
}

/// Numbers in [0, 1).
struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number of any magnitude between 1e-6 and 30, or within [-2, 2].
    fn part(&mut self) -> f64 {
        let sign = if self.unit() < 0.5 { -1.0 } else { 1.0 };
        if self.unit() < 0.5 {
            sign * 10f64.powf(self.unit() * 7.5 - 6.0)
        } else {
            sign * 2.0 * self.unit()
        }
    }
}

/// The value `v` as a part of `dtype` holds it.
fn rounded(dtype: DType, v: f64) -> f64 {
    if matches!(dtype, C64 | F32) { f64::from(v as f32) } else { v }
}

fn values(dtype: DType, n: usize, seed: u64) -> Vec<Complex> {
    let mut random = Random(seed);
    let mut list: Vec<Complex> =
        vec![[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -2.0], [3.0, 4.0]];
    list.extend((list.len()..n).map(|_| [random.part(), random.part()]));
    list.truncate(n);
    for z in &mut list {
        *z = match dtype {
            Bool => [f64::from(u8::from(z[0] > 0.0)), 0.0],
            F32 | F64 => [rounded(dtype, z[0]), 0.0],
            _ => [rounded(dtype, z[0]), rounded(dtype, z[1])],
        };
    }
    list
}

fn tensor(dtype: DType, dims: &[usize], v: &[Complex]) -> HostTensor {
    let parts: Vec<f64> = v.iter().flatten().copied().collect();
    match dtype {
        C64 => HostTensor::of(
            C64,
            dims,
            &v.iter().map(|z| [z[0] as f32, z[1] as f32]).collect::<Vec<_>>(),
        ),
        C128 => HostTensor::of(C128, dims, v),
        Bool => HostTensor::bool(dims, &v.iter().map(|z| z[0] != 0.0).collect::<Vec<_>>()),
        _ => HostTensor::floats(dtype, dims, &parts.iter().step_by(2).copied().collect::<Vec<_>>()),
    }
}

fn elements(t: &HostTensor) -> Vec<Complex> {
    match t.dtype {
        C64 => t.values::<[f32; 2]>().into_iter().map(|z| z.map(f64::from)).collect(),
        C128 => t.values::<[f64; 2]>(),
        _ => t.to_f64().into_iter().map(|v| [v, 0.0]).collect(),
    }
}

/// Fails unless every element differs by at most `ulps` of its absolute value; NaN parts equal NaN
/// parts.
#[track_caller]
fn assert_close(
    dtype: DType,
    ulps: u32,
    got: &[Complex],
    wanted: &[Complex],
    context: impl Fn(usize) -> String,
) {
    let epsilon = f64::from(ulps) * if matches!(dtype, C64 | F32) { 6e-8 } else { 2.3e-16 };
    assert_eq!(got.len(), wanted.len());
    for (i, (g, w)) in got.iter().zip(wanted).enumerate() {
        let scale = w.iter().filter(|p| p.is_finite()).fold(0.0f64, |a, p| a.hypot(*p));
        for k in 0..2 {
            let w = rounded(dtype, w[k]);
            let same = if w.is_finite() {
                (g[k] - w).abs() <= epsilon * scale
            } else {
                g[k] == w || (w.is_nan() && g[k].is_nan())
            };
            assert!(same, "{}: expected {:?}, got {g:?}", context(i), wanted[i]);
        }
    }
}

fn node(row: &Row, dtype: DType) -> Node {
    let node = Node::new(row.op).attr("T", dtype).attr("Tout", row.output_type(dtype));
    if matches!(row.shapes, Shapes::BroadcastOr(_)) {
        node.attr("incompatible_shape_error", true)
    } else {
        node
    }
}

fn check(
    session: &mut Session,
    row: &Row,
    dtype: DType,
    shapes: &[Vec<usize>],
    columns: &[Vec<Complex>],
) {
    let types = row.input_types(dtype);
    let inputs: Vec<_> = types
        .iter()
        .zip(shapes)
        .zip(columns)
        .map(|((t, dims), c)| tensor(*t, dims, c).into())
        .collect();
    let z = session
        .run(&node(row, dtype), &inputs)
        .unwrap_or_else(|e| panic!("{} {dtype} {shapes:?}: {e}", row.op));
    let dims =
        shapes[1..].iter().fold(shapes[0].clone(), |d, s| broadcast_dims(&d, s).unwrap().to_vec());
    assert_eq!((&z[0].dims[..], z[0].dtype), (&dims[..], row.output_type(dtype)), "{}", row.op);
    let walk = shapes.iter().fold(Iteration::over(&dims), |walk, s| walk.broadcast(s));
    let arguments = |i: usize| -> Vec<Complex> {
        (0..shapes.len())
            .map(|k| {
                let (mut rest, mut at) = (i, 0);
                for (extent, stride) in dims.iter().zip(walk.strides(k)).rev() {
                    at += (rest % extent) * *stride as usize;
                    rest /= extent;
                }
                columns[k][at]
            })
            .collect()
    };
    let case = row.case(dtype).expect("a case");
    let Reference::Complex(f) = case.reference else {
        panic!("{}: not a complex reference", row.op)
    };
    let wanted: Vec<Complex> = (0..z[0].dims.iter().product()).map(|i| f(&arguments(i))).collect();
    assert_close(z[0].dtype, case.ulps, &elements(&z[0]), &wanted, |i| {
        format!("{} {dtype} {:?}", row.op, arguments(i))
    });
}

#[test]
fn rows_match_their_references() {
    let mut session = session();
    for row in table::ROWS {
        for dtype in row.types().filter(|t| session.runs(*t)).collect::<Vec<_>>() {
            let columns: Vec<_> = row
                .input_types(dtype)
                .iter()
                .enumerate()
                .map(|(k, t)| values(*t, 420, 7 + k as u64))
                .collect();
            let n = columns.len();
            let mut shapes = vec![
                vec![vec![420]; n],
                vec![vec![3, 1, 7]; n],
                vec![vec![]; n],
                vec![vec![0, 3]; n],
            ];
            match (row.shapes, n) {
                (Shapes::Select, _) => shapes.push(vec![vec![4], vec![4, 3], vec![4, 3]]),
                (Shapes::Same, _) => {}
                // The walks do not depend on the precision.
                (_, 2) if dtype.part() == F64 => shapes.push(vec![vec![5, 1], vec![7]]),
                (_, 2) => shapes.extend([
                    vec![vec![5, 1], vec![7]],
                    vec![vec![], vec![2, 3]],
                    vec![vec![2, 1, 3], vec![5, 1]],
                ]),
                (_, 3) => shapes.push(vec![vec![5, 1], vec![], vec![1, 7]]),
                _ => {}
            }
            for shape in &mut shapes {
                let reshaped = row.shapes == Shapes::Select && shape[0].len() < shape[1].len();
                if reshaped {
                    // The reference broadcasts; a vector of conditions selects rows.
                    let z = session.run(
                        &node(row, dtype),
                        &shape
                            .iter()
                            .zip(row.input_types(dtype))
                            .zip(&columns)
                            .map(|((d, t), c)| tensor(t, d, &c[..d.iter().product()]).into())
                            .collect::<Vec<_>>(),
                    );
                    let got = elements(&z.unwrap()[0]);
                    let picked: Vec<_> = (0..12)
                        .map(|i| columns[if columns[0][i / 3][0] != 0.0 { 1 } else { 2 }][i])
                        .collect();
                    assert_eq!(got, picked);
                    continue;
                }
                let cut: Vec<_> = shape
                    .iter()
                    .zip(&columns)
                    .map(|(d, c)| c[..d.iter().product()].to_vec())
                    .collect();
                check(&mut session, row, dtype, shape, &cut);
            }
            session.misalign = 1;
            check(
                &mut session,
                row,
                dtype,
                &vec![vec![37]; n],
                &columns.iter().map(|c| c[..37].to_vec()).collect::<Vec<_>>(),
            );
            session.misalign = 0;
        }
    }
}

/// Infinite, huge and tiny arguments: nothing overflows or underflows on the way.
#[test]
fn extremes() {
    let mut session = session();
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let mut run = |op: &str, dtype, columns: &[&[Complex]]| {
        let row = table::ROWS.iter().find(|r| r.op == op).expect("a row");
        let inputs: Vec<_> = columns.iter().map(|c| tensor(dtype, &[c.len()], c).into()).collect();
        let z = session.run(&node(row, dtype), &inputs).unwrap();
        elements(&z[0])
    };
    let close = |got: Vec<Complex>, wanted: &[Complex], op: &str| {
        assert_close(C64, 8, &got, wanted, |i| format!("{op} {i}"));
    };
    let huge = [[3e38, 3e38], [1e-30, 1e-30], [-inf, nan], [3.0, -4.0], [nan, 1.0], [1e-20, 3e30]];
    close(run("ComplexAbs", C64, &[&huge[..2]]), &[[inf, 0.0], [1.414_213_6e-30, 0.0]], "abs");
    close(
        run("ComplexAbs", C64, &[&huge[2..]]),
        &[[inf, 0.0], [5.0, 0.0], [nan, 0.0], [3e30, 0.0]],
        "abs",
    );
    let x =
        [[1.0, 2.0], [1.0, 1.0], [3e38, 3e38], [1e-30, 1e-30], [0.0, 0.0], [1.0, 1.0], [inf, 1.0]];
    let y = [
        [0.0, 0.0],
        [inf, 0.0],
        [3e38, 3e38],
        [1e-30, 1e-30],
        [0.0, 0.0],
        [3e20, -3e20],
        [2.0, 1.0],
    ];
    let quotients = [
        [inf, inf],
        [0.0, 0.0],
        [1.0, 0.0],
        [1.0, 0.0],
        [nan, nan],
        [0.0, 1.0 / 3e20],
        [inf, -inf],
    ];
    close(run("RealDiv", C64, &[&x, &y]), &quotients, "div");
    let e = [[-inf, 1.0], [89.5, 1.57], [inf, 0.0], [100.0, 0.0]];
    let exponentials = [
        [0.0, 0.0],
        reference::exp([f64::from(89.5f32), f64::from(1.57f32)]),
        [inf, 0.0],
        [inf, 0.0],
    ];
    let got = run("Exp", C64, &[&e]);
    assert!((got[1][0] / exponentials[1][0] - 1.0).abs() < 1e-5 && got[1][1] == inf);
    close(
        vec![got[0], got[2], got[3]],
        &[exponentials[0], exponentials[2], exponentials[3]],
        "exp",
    );
    close(
        run("Sin", C64, &[&[[0.5, 90.0], [inf, 0.0], [0.0, inf]]])[1..].to_vec(),
        &[[nan, 0.0], [0.0, inf]],
        "sin",
    );
    close(
        run("Tan", C64, &[&[[1.0, inf], [0.5, 90.0], [2.0, -1000.0]]]),
        &[[0.0, 1.0], [0.0, 1.0], [0.0, -1.0]],
        "tan",
    );
    close(
        run("Sign", C64, &[&[[3e38, 0.0], [1e-30, 1e-30]]]),
        &[[1.0, 0.0], [0.5f64.sqrt(), 0.5f64.sqrt()]],
        "sign",
    );
}

#[test]
fn conversions() {
    let mut session = session();
    let mut cast = |from: DType, to: DType, t: HostTensor| {
        let node = Node::new("Cast").attr("SrcT", from).attr("DstT", to).attr("Truncate", false);
        session.run(&node, &[t.into()]).unwrap()[0].clone()
    };
    let z = [[2.5, -3.0], [-1.5, 0.0], [0.0, 1.0]];
    let t = tensor(C64, &[3], &z);
    assert_eq!(cast(C64, F32, t.clone()).to_f64(), [2.5, -1.5, 0.0]);
    assert_eq!(cast(C64, F16, t.clone()).to_f64(), [2.5, -1.5, 0.0]);
    assert_eq!(cast(C64, I32, t.clone()).to_f64(), [2.0, -1.0, 0.0]);
    assert_eq!(cast(C64, Bool, t.clone()).to_f64(), [1.0, 1.0, 0.0]);
    assert_eq!(
        elements(&cast(I32, C64, HostTensor::i32(&[2], &[-7, 1]))),
        [[-7.0, 0.0], [1.0, 0.0]]
    );
    assert_eq!(
        elements(&cast(Bool, C64, HostTensor::bool(&[2], &[true, false]))),
        [[1.0, 0.0], [0.0, 0.0]]
    );
    if session.runs(C128) {
        let node = Node::new("Cast").attr("SrcT", C64).attr("DstT", C128).attr("Truncate", false);
        let wide = session.run(&node, &[t.into()]).unwrap()[0].clone();
        assert_eq!(elements(&wide), z);
    }
}

#[test]
fn conjugate_transpose() {
    let mut session = session();
    for dtype in COMPLEX.iter().copied().filter(|t| session.runs(*t)).collect::<Vec<_>>() {
        let v = values(dtype, 24, 3);
        for (perm, dims) in [([2, 0, 1], [4usize, 2, 3]), ([0, 1, 2], [2, 3, 4])] {
            let node = Node::new("ConjugateTranspose").attr("T", dtype);
            let inputs =
                [tensor(dtype, &[2, 3, 4], &v).into(), HostTensor::i32(&[3], &perm).into()];
            let z = session.run(&node, &inputs).unwrap();
            assert_eq!(z[0].dims[..], dims);
            let strides = [12, 4, 1];
            let wanted: Vec<Complex> = (0..24)
                .map(|i| {
                    let at = [i / (dims[1] * dims[2]), i / dims[2] % dims[1], i % dims[2]];
                    reference::conj(
                        v[(0..3).map(|d| at[d] * strides[perm[d] as usize]).sum::<usize>()],
                    )
                })
                .collect();
            assert_eq!(elements(&z[0]), wanted);
        }
    }
}

#[test]
fn reductions() {
    let mut session = session();
    for dtype in COMPLEX.iter().copied().filter(|t| session.runs(*t)).collect::<Vec<_>>() {
        for (rows, columns) in [(3, 5), (1, 700), (0, 2), (2, 0), (300, 70)] {
            let mut v = values(dtype, rows * columns, 11);
            // Of absolute value near 1, so that products stay finite.
            for z in v.iter_mut().filter(|z| **z != [0.0, 0.0]) {
                *z = reference::sign(*z).map(|p| rounded(dtype, p));
            }
            for axis in [0, 1] {
                let (kept, length) = if axis == 0 { (columns, rows) } else { (rows, columns) };
                for op in ["Sum", "Prod", "Mean", "EuclideanNorm"] {
                    let node =
                        Node::new(op).attr("T", dtype).attr("Tidx", I32).attr("keep_dims", false);
                    let inputs = [
                        tensor(dtype, &[rows, columns], &v).into(),
                        HostTensor::i32(&[1], &[axis]).into(),
                    ];
                    let got = elements(&session.run(&node, &inputs).unwrap()[0]);
                    let wanted: Vec<Complex> = (0..kept)
                        .map(|k| {
                            let run = (0..length).map(|i| {
                                if axis == 0 { v[i * columns + k] } else { v[k * columns + i] }
                            });
                            let sum = run.clone().fold([0.0, 0.0], reference::add);
                            match op {
                                "Sum" => sum,
                                "Mean" => sum.map(|p| p / length as f64),
                                "Prod" => run.fold([1.0, 0.0], reference::mul),
                                _ => [
                                    run.map(|z| z[0] * z[0] + z[1] * z[1]).sum::<f64>().sqrt(),
                                    0.0,
                                ],
                            }
                        })
                        .collect();
                    // Sums cancel, so the error is compared with the number of terms.
                    let ulps = 8 + 2 * length as u32;
                    assert_close(dtype, ulps * 4, &got, &wanted, |i| {
                        format!("{op} {dtype} [{rows},{columns}] axis {axis}: {i}")
                    });
                }
            }
        }
    }
}

#[test]
fn segment_sums() {
    let mut session = session();
    for dtype in COMPLEX.iter().copied().filter(|t| session.runs(*t)).collect::<Vec<_>>() {
        let v = values(dtype, 12, 5);
        let node = Node::new("UnsortedSegmentSum")
            .attr("T", dtype)
            .attr("Tindices", I32)
            .attr("Tnumsegments", I32);
        let inputs = [
            tensor(dtype, &[6, 2], &v).into(),
            HostTensor::i32(&[6], &[0, 2, 0, -1, 2, 2]).into(),
            HostTensor::i32(&[], &[4]).into(),
        ];
        let got = elements(&session.run(&node, &inputs).unwrap()[0]);
        let row = |rows: &[usize], k: usize| {
            rows.iter().fold([0.0, 0.0], |a, r| reference::add(a, v[r * 2 + k]))
        };
        let wanted: Vec<Complex> = [&[0, 2][..], &[], &[1, 4, 5], &[]]
            .iter()
            .flat_map(|rows| [row(rows, 0), row(rows, 1)])
            .collect();
        assert_close(dtype, 8, &got, &wanted, |i| format!("segment sum {i}"));
    }
}

#[test]
fn sums_of_many() {
    let mut session = session();
    let v = values(C64, 5, 9);
    let inputs: Vec<_> = (0..8).map(|_| tensor(C64, &[5], &v).into()).collect();
    let z = session.run(&Node::new("AddN").attr("T", C64).attr("N", 8), &inputs).unwrap();
    let wanted: Vec<Complex> = v.iter().map(|z| z.map(|p| 8.0 * p)).collect();
    assert_close(C64, 8, &elements(&z[0]), &wanted, |i| format!("AddN {i}"));
}
