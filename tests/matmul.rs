//! MatMul and its batch forms against an f64 product, with all tile tables.

#[path = "numeric/complex.rs"]
mod complex;
#[path = "matmul/integers.rs"]
mod integers;
#[path = "numeric/matrices.rs"]
mod matrices;
mod numeric;
#[path = "numeric/products.rs"]
#[allow(dead_code, reason = "convolutions have tests of their own")]
mod products;
#[path = "matmul/schedules.rs"]
mod schedules;

use matrices::{emulated, emulates_matrices, offering};
use numeric::bindings::under;
use numeric::{Random, assert_close, session};
use tensorflow_wgpu::device::{
    Cooperative, Device, MatrixSize, Means, Policy, Profile, Selection, Verdict,
};
use tensorflow_wgpu::kernels::contract::tile::{Tile, TileKind};
use tensorflow_wgpu::kernels::contract::{software, tables};
use tensorflow_wgpu::local::{Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor};

/// `c[m][n]`, with the operands' transposes undone by indexing.
fn product(a: &[f64], b: &[f64], [m, k, n]: [usize; 3], ta: bool, tb: bool) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            for l in 0..k {
                let x = if ta { a[l * m + i] } else { a[i * k + l] };
                let y = if tb { b[j * k + l] } else { b[l * n + j] };
                c[i * n + j] += x * y;
            }
        }
    }
    c
}

fn matmul(dtype: DType, ta: bool, tb: bool) -> Node {
    Node::new("MatMul").attr("T", dtype).attr("transpose_a", ta).attr("transpose_b", tb)
}

fn batched(op: &str, dtype: DType, x: bool, y: bool) -> Node {
    let node = Node::new(op).attr("adj_x", x).attr("adj_y", y);
    if op == "BatchMatMulV3" {
        let result = if dtype == DType::I8 { DType::I32 } else { dtype };
        node.attr("Ta", dtype).attr("Tb", dtype).attr("Tout", result)
    } else {
        node.attr("T", dtype)
    }
}

fn swapped(rows: usize, columns: usize, transposed: bool) -> [usize; 2] {
    if transposed { [columns, rows] } else { [rows, columns] }
}

/// Random operands and their product.
struct Product {
    dtype: DType,
    shape: [usize; 3],
    transposed: [bool; 2],
    operands: [HostTensor; 2],
    want: Vec<f64>,
}

impl Product {
    fn new(dtype: DType, shape: [usize; 3], ta: bool, tb: bool) -> Self {
        let [m, k, n] = shape;
        let mut random = Random::new((m * 31 + k * 7 + n) as u64);
        let (a, av) = random.tensor(dtype, &swapped(m, k, ta));
        let (b, bv) = random.tensor(dtype, &swapped(k, n, tb));
        let want = product(&av, &bv, shape, ta, tb);
        Self { dtype, shape, transposed: [ta, tb], operands: [a, b], want }
    }

    fn check(&self, misalign: usize) {
        let Self { dtype, shape: [m, k, n], transposed: [ta, tb], ref operands, ref want } = *self;
        let mut session = session();
        session.misalign = misalign;
        let profile = session.device.profile().name;
        let what = format!("{dtype} {m}x{k}x{n} {ta} {tb} {profile} misaligned by {misalign}");
        let inputs = operands.clone().map(Into::into);
        let got = session.run(&matmul(dtype, ta, tb), &inputs).expect(&what);
        assert_eq!(got[0].dims[..], [m, n]);
        assert_close(&got[0], want, k as f64, &what);
    }
}

fn check(dtype: DType, shape: [usize; 3], ta: bool, tb: bool, misalign: usize) {
    let product = Product::new(dtype, shape, ta, tb);
    for profile in Profile::DISTINCT {
        under(profile, || {
            if session().runs(dtype) {
                product.check(misalign);
            }
        });
    }
}

fn check_once(dtype: DType, shape: [usize; 3], ta: bool, tb: bool, misalign: usize) {
    if session().runs(dtype) {
        Product::new(dtype, shape, ta, tb).check(misalign);
    }
}

const SHAPES: &[[usize; 3]] = &[
    [1, 1, 1],
    [1, 5, 1],
    [3, 1, 2],
    [8, 16, 64],
    [7, 13, 5],
    [4, 8, 4],
    [65, 33, 67],
    [64, 64, 64],
    [100, 20, 10],
    [1, 300, 40],
    [40, 300, 1],
    [130, 36, 132],
    [33, 4, 260],
    [2, 8, 12],
    [5, 4, 3],
    [64, 33, 64],
    [16, 7, 36],
    [20, 6, 33],
];

#[test]
fn float32_in_all_orientations() {
    for &shape in SHAPES {
        for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
            check(DType::F32, shape, ta, tb, 0);
        }
    }
}

/// Rows a page apart, which software adapters copy first.
#[test]
fn operands_whose_rows_are_pages() {
    check(DType::F32, [256, 256, 1024], false, false, 0);
    check(DType::F32, [257, 1024, 36], false, true, 0);
    check(DType::F16, [260, 2048, 8], true, true, 0);
}

/// Few columns and many rows, which software adapters compute as the transpose.
#[test]
fn narrow_results() {
    for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
        for shape in [[300, 8, 10], [260, 7, 12], [40, 64, 1]] {
            check(DType::F32, shape, ta, tb, 0);
        }
    }
    check(DType::F16, [300, 12, 6], true, false, 0);
    check(DType::F64, [70, 12, 6], false, true, 0);
    // Contractions that are split, and results at any address.
    check(DType::F32, [64, 20_000, 3], false, false, 1);
    check(DType::BF16, [300, 12, 7], false, false, 1);
}

/// Each tile of GPUs alone, with edges in both directions and an incomplete last step: some of them
/// are normally chosen only for sizes that tests do not have.
#[test]
fn every_tile_of_gpus() {
    let tiles =
        tables::all().filter(|t| t.kind != TileKind::Subgroup && !software::LANES.contains(t));
    for (i, tile) in tiles.enumerate() {
        let shape = [tile.m() + 3, 45, tile.n() + 5];
        let vec4s = [tile.m() + 4, 44, tile.n() + 8];
        // Compiling takes most of the time: each tile has two of these.
        let cases = [
            (DType::F32, shape, false, true),
            (DType::F32, vec4s, false, false),
            (DType::F16, vec4s, true, true),
            (DType::BF16, shape, true, false),
            (DType::F32, vec4s, true, true),
            (DType::F64, shape, false, false),
        ];
        for (dtype, shape, ta, tb) in [cases[i % 6], cases[(i + 4 - i % 2) % 6]] {
            let profile = Profile { tile: tile.id(), ..Profile::NVIDIA };
            under(profile, || check_once(dtype, shape, ta, tb, 0));
        }
    }
}

/// The largest tile of at most 64 rows for these matrices.
fn tile_of(cooperative: Cooperative) -> u32 {
    let tiles = tables::cooperative(Some(cooperative)).filter(|t| t.m() <= 64);
    tiles.max_by_key(|t| t.m()).expect("a tile of at most 64 rows").id()
}

/// Products of `dtype` with these matrices, which are probed before.
fn check_matrices(offered: Cooperative, dtype: DType, shapes: &[([usize; 3], bool, bool)]) {
    let verdict = under(offering(offered, tile_of(offered)), || {
        for (shape, ta, tb) in shapes {
            check_once(dtype, *shape, *ta, *tb, 0);
        }
        session().device.matrix_units().verdict(offered.element)
    });
    assert_eq!(verdict, Some(Verdict::Pays { lanes: offered.lanes }), "{offered:?}");
}

/// Matrices that every invocation computes for itself replace the matrices that no software adapter
/// has. All else, including the test products, is as on an adapter that has them. All sizes are
/// tested, with edges in all directions.
#[test]
fn cooperative_matrices_of_all_sizes() {
    if !emulates_matrices() {
        return;
    }
    let cases = [
        ([70, 40, 68], false, false),
        ([132, 33, 64], true, false),
        ([65, 36, 67], false, true),
        ([3, 7, 5], true, true),
    ];
    // One after the other: compiling takes most of the time.
    for (i, size) in MatrixSize::ALL.into_iter().enumerate() {
        check_matrices(emulated(size, DType::F16), DType::F16, &cases[i % 4..][..1]);
    }
}

/// The adapter's own matrices, if it has any and `TF_WGPU_COOPERATIVE_MATRIX` asks for them: each
/// of their tiles, with each way to load operands, with steps that fill tiles or do not, and with
/// edges in all directions.
#[test]
fn cooperative_matrices_of_the_adapter() {
    let (own, policy) = {
        let device = session().device;
        (device.profile(), device.matrix_units().policy())
    };
    let has = own.capabilities;
    let Some(offered) = has.matrices.f16.filter(|_| policy == Policy::Forced) else {
        println!("skipped: no matrices of float16, or nothing asks for them");
        return;
    };
    let fits = |t: &&Tile| t.workgroup_memory() <= has.workgroup_memory;
    for tile in tables::cooperative(Some(offered)).filter(fits) {
        let verdict = under(Profile { tile: tile.id(), ..own }, || {
            for (shape, ta, tb) in [
                ([132, 100, 140], false, false),
                ([140, 64, 132], true, true),
                ([68, 20, 136], true, false),
                ([33, 96, 72], false, true),
                ([70, 35, 67], false, false),
            ] {
                check_once(DType::F16, shape, ta, tb, 0);
            }
            session().device.matrix_units().verdict(DType::F16)
        });
        assert!(matches!(verdict, Some(Verdict::Pays { .. })), "{tile:?}: {verdict:?}");
    }
}

/// Matrices of float32, which multiply bfloat16 as well.
#[test]
fn cooperative_matrices_of_float32() {
    if !emulates_matrices() {
        return;
    }
    let (square, other) = (MatrixSize::new(8, 8, 8), MatrixSize::new(16, 8, 8));
    for dtype in [DType::F32, DType::BF16] {
        let cases = [([70, 40, 68], false, true), ([33, 13, 10], true, false)];
        check_matrices(emulated(square, DType::F32), dtype, &cases);
    }
    check_matrices(emulated(other, DType::F32), DType::F32, &[([66, 34, 67], true, true)]);
}

/// Subgroups that are smaller than a program expects, as large, and so large that there are fewer
/// subgroups than blocks.
#[test]
fn cooperative_matrices_on_subgroups_of_any_size() {
    if !emulates_matrices() {
        return;
    }
    let shapes = [([70, 70, 68], false, false)];
    let (square, other) = (MatrixSize::new(16, 16, 16), MatrixSize::new(8, 16, 16));
    for (size, lanes, means) in [
        (square, 128, Means::Emulation),
        (other, 8, Means::Emulation),
        (square, 16, Means::TwoSubgroups),
        (other, 32, Means::TwoSubgroups),
    ] {
        let offered = Cooperative { lanes, means, ..emulated(size, DType::F16) };
        check_matrices(offered, DType::F16, &shapes);
    }
}

/// A driver that multiplies wrongly, and one that does not compile: both are detected, and the
/// product is right.
#[test]
fn cooperative_matrices_that_are_wrong() {
    let (square, other) = (MatrixSize::new(16, 16, 16), MatrixSize::new(8, 8, 16));
    for (means, size, element) in [
        (Means::WrongEmulation, square, DType::F16),
        (Means::WrongEmulation, other, DType::F32),
        (Means::Nonsense, other, DType::F16),
    ] {
        let offered = Cooperative { means, ..emulated(size, element) };
        let verdict = under(offering(offered, 0), || {
            check_once(element, [65, 40, 68], false, true, 0);
            // The adapter's own failures do not affect the next op.
            check_once(DType::F32, [4, 4, 4], false, false, 0);
            session().device.matrix_units().verdict(element)
        });
        assert_eq!(verdict, Some(Verdict::Wrong), "{means:?}");
    }
}

/// Emulated matrices are right and slower than anything else: a probe that times them rejects them
/// quickly.
#[test]
fn cooperative_matrices_that_do_not_pay() {
    if !emulates_matrices() {
        return;
    }
    let selection = Selection::enumerate(&|name| std::env::var(name).ok());
    let adapter = selection.adapters.first().expect("a Vulkan driver");
    let offered = emulated(MatrixSize::new(8, 8, 16), DType::F16);
    let own = session().device.profile();
    let profile = offering(offered, 0).on(own);
    let device = Device::open_probing(adapter, profile).expect("a device");
    let mut session = Session::new(device.clone());
    let operand = |dims: &[usize]| Random::new(7).tensor(DType::F16, dims);
    let ((a, av), (b, bv)) = (operand(&[65, 40]), operand(&[40, 68]));
    let node = matmul(DType::F16, false, false);
    let got = session.run(&node, &[a.into(), b.into()]).expect("a product");
    assert_close(&got[0], &product(&av, &bv, [65, 40, 68], false, false), 40.0, "probed");
    let slower = Some(Verdict::Slower { lanes: 32 });
    assert_eq!(device.matrix_units().verdict(DType::F16), slower);
}

/// Few rows or columns and a long contraction, which GPUs compute by groups that share sums.
#[test]
fn vectors_and_few_rows() {
    for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
        for shape in [
            [1, 516, 260],
            [4, 300, 68],
            [3, 517, 33],
            [1, 2000, 1],
            [16, 512, 132],
            [200, 400, 1],
            [130, 96, 3],
        ] {
            check(DType::F32, shape, ta, tb, 0);
        }
    }
    for dtype in [DType::F16, DType::BF16, DType::F64] {
        check(dtype, [1, 520, 132], false, false, 0);
        check(dtype, [4, 520, 36], false, true, 0);
        check(dtype, [140, 520, 1], true, false, 0);
    }
    check(DType::F16, [2, 300, 40], false, true, 1);
    // Long enough to be split as well.
    check(DType::F32, [1, 40_000, 20], false, false, 0);
    check(DType::F32, [2, 40_000, 8], false, true, 0);
}

#[test]
fn other_floats() {
    for dtype in [DType::F16, DType::BF16, DType::F64] {
        for &shape in &[[7, 13, 5], [8, 16, 64], [1, 1, 1], [65, 33, 66], [12, 8, 20]] {
            for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
                check(dtype, shape, ta, tb, 0);
            }
        }
    }
}

#[test]
fn operands_at_any_address() {
    for dtype in [DType::F32, DType::F16] {
        for (ta, tb) in [(false, false), (true, true)] {
            check(dtype, [16, 8, 12], ta, tb, 1);
        }
    }
}

#[test]
fn empty_operands_give_empty_results_or_zeros() {
    for (dims_a, dims_b) in [([0, 3], [3, 4]), ([2, 3], [3, 0]), ([0, 0], [0, 0])] {
        let (a, b) =
            (HostTensor::floats(DType::F32, &dims_a, &vec![1.0; dims_a[0] * dims_a[1]]), dims_b);
        let b = HostTensor::floats(DType::F32, &b, &vec![1.0; b[0] * b[1]]);
        let got = session().run(&matmul(DType::F32, false, false), &[a.into(), b.into()]).unwrap();
        assert!(got[0].bytes.is_empty());
    }
    for dtype in [DType::F32, DType::F16] {
        let (a, b) =
            (HostTensor::floats(dtype, &[3, 0], &[]), HostTensor::floats(dtype, &[0, 5], &[]));
        let got = session().run(&matmul(dtype, false, false), &[a.into(), b.into()]).unwrap();
        assert_eq!((&got[0].dims[..], got[0].to_f64()), (&[3, 5][..], vec![0.0; 15]));
    }
}

#[test]
fn a_long_contraction_stays_precise() {
    let (m, k, n) = (3, 100_000, 8);
    let mut random = Random::new(5);
    let (a, av) = random.tensor(DType::F32, &[m, k]);
    let (b, bv) = random.tensor(DType::F32, &[k, n]);
    // Positive values: the sum grows all the way, which is where a single f32 sum loses most.
    let positive = |t: &HostTensor| {
        HostTensor::floats(
            DType::F32,
            &t.dims,
            &t.to_f64().iter().map(|v| v.abs()).collect::<Vec<_>>(),
        )
    };
    let (pa, pb) = (positive(&a), positive(&b));
    for (a, b, av, bv) in [(a, b, av, bv), (pa.clone(), pb.clone(), pa.to_f64(), pb.to_f64())] {
        let want = product(&av, &bv, [m, k, n], false, false);
        for profile in Profile::DISTINCT {
            let inputs = [a.clone().into(), b.clone().into()];
            let got = under(profile, || session().run(&matmul(DType::F32, false, false), &inputs))
                .unwrap();
            let norm = want.iter().map(|w| w * w).sum::<f64>().sqrt();
            let error =
                got[0].to_f64().iter().zip(&want).map(|(g, w)| (g - w).powi(2)).sum::<f64>().sqrt();
            assert!(error <= 1e-5 * norm, "{profile}: {error:e} of {norm:e}");
        }
    }
}

#[test]
fn batches_broadcast() {
    let mut random = Random::new(11);
    let cases: &[(&[usize], &[usize])] = &[
        (&[2], &[2]),
        (&[3], &[1]),
        (&[1], &[3]),
        (&[2, 1, 3], &[4, 1]),
        (&[2, 1, 2, 1], &[1, 3, 1, 2]),
        (&[], &[2, 3]),
        (&[5], &[]),
        (&[0], &[1]),
    ];
    for dtype in session().supported([DType::F32, DType::F16, DType::BF16, DType::F64]) {
        for (x, y) in cases {
            for op in ["BatchMatMulV2", "BatchMatMulV3", "BatchMatMul"] {
                if op == "BatchMatMul" && x != y {
                    continue;
                }
                let m = random.between(1, 9);
                let [m, k, n] = random.pick(&[[3, 5, 7], [4, 8, 12], [m, 4, 2]]);
                let (ta, tb) = (random.below(2) == 1, random.below(2) == 1);
                let dims_x = [x, &swapped(m, k, ta)[..]].concat();
                let dims_y = [y, &swapped(k, n, tb)[..]].concat();
                let (a, av) = random.tensor(dtype, &dims_x);
                let (b, bv) = random.tensor(dtype, &dims_y);
                let batch = tensorflow_wgpu::layout::broadcast_dims(x, y).unwrap();
                let walk =
                    tensorflow_wgpu::layout::Iteration::over(&batch).broadcast(x).broadcast(y);
                let mut want = Vec::new();
                for z in 0..walk.len() {
                    let at = |operand: usize| {
                        let mut rest = z;
                        let mut at = 0;
                        for d in (0..batch.len()).rev() {
                            at += rest % batch[d] * walk.strides(operand)[d] as usize;
                            rest /= batch[d];
                        }
                        at
                    };
                    let (i, j) = (at(0) * m * k, at(1) * k * n);
                    want.extend(product(&av[i..i + m * k], &bv[j..j + k * n], [m, k, n], ta, tb));
                }
                for profile in Profile::DISTINCT {
                    let inputs = [a.clone().into(), b.clone().into()];
                    let what = format!("{op} {dtype} {x:?} {y:?} {m}x{k}x{n} {ta} {tb} {profile}");
                    let got =
                        under(profile, || session().run(&batched(op, dtype, ta, tb), &inputs))
                            .expect(&what);
                    assert_eq!(got[0].dims[..], [&batch[..], &[m, n][..]].concat()[..], "{what}");
                    assert_close(&got[0], &want, k as f64, &what);
                }
            }
        }
    }
}

/// Complex matrices transpose in MatMul and are conjugated as well in the batch forms.
#[test]
fn complex_numbers() {
    let mut random = Random::new(3);
    for dtype in session().supported([DType::C64, DType::C128]) {
        for [m, k, n] in [[3, 5, 7], [33, 20, 66], [1, 200, 20]] {
            for (op, ta, tb) in [
                ("MatMul", true, true),
                ("BatchMatMulV2", true, false),
                ("BatchMatMulV3", false, true),
            ] {
                let (a, av) = complex::complex_or_real(&mut random, dtype, &swapped(m, k, ta));
                let (b, bv) = complex::complex_or_real(&mut random, dtype, &swapped(k, n, tb));
                let sign = |transposed: bool| if transposed && op != "MatMul" { -1.0 } else { 1.0 };
                let part = |v: &[(f64, f64)], conjugated: bool| -> [Vec<f64>; 2] {
                    [
                        v.iter().map(|v| v.0).collect(),
                        v.iter().map(|v| v.1 * sign(conjugated)).collect(),
                    ]
                };
                let ([ar, ai], [br, bi]) = (part(&av, ta), part(&bv, tb));
                let times = |x: &[f64], y: &[f64]| product(x, y, [m, k, n], ta, tb);
                let (rr, ii, ri, ir) =
                    (times(&ar, &br), times(&ai, &bi), times(&ar, &bi), times(&ai, &br));
                let want: Vec<_> = (0..m * n).map(|i| (rr[i] - ii[i], ri[i] + ir[i])).collect();
                let node =
                    if op == "MatMul" { matmul(dtype, ta, tb) } else { batched(op, dtype, ta, tb) };
                for profile in Profile::DISTINCT {
                    let what = format!("{op} {dtype} {m}x{k}x{n} {ta} {tb} {profile}");
                    let inputs = [a.clone().into(), b.clone().into()];
                    let got = under(profile, || session().run(&node, &inputs)).expect(&what);
                    complex::assert_complex_close(&got[0], &want, 2.0 * k as f64, &what);
                }
            }
        }
    }
}

#[test]
fn more_workgroups_than_one_dimension_has() {
    // 70,000 matrices of 1x2 by 2x1.
    let n = 70_000;
    let (a, av) = Random::new(1).tensor(DType::F32, &[n, 1, 2]);
    let (b, bv) = Random::new(2).tensor(DType::F32, &[n, 2, 1]);
    let want: Vec<f64> =
        (0..n).map(|i| av[2 * i] * bv[2 * i] + av[2 * i + 1] * bv[2 * i + 1]).collect();
    for profile in Profile::DISTINCT {
        let inputs = [a.clone().into(), b.clone().into()];
        let got = under(profile, || {
            session().run(&batched("BatchMatMulV2", DType::F32, false, false), &inputs)
        })
        .unwrap();
        assert_close(&got[0], &want, 2.0, &format!("{profile}"));
    }
}

#[test]
fn infinities_stay_in_their_row_and_column() {
    let a = HostTensor::f32(&[2, 3], &[1.0, f32::INFINITY, 2.0, 1.0, 1.0, 1.0]);
    let b = HostTensor::f32(&[3, 5], &[1.0; 15]);
    for profile in Profile::DISTINCT {
        let inputs = [a.clone().into(), b.clone().into()];
        let got =
            under(profile, || session().run(&matmul(DType::F32, false, false), &inputs)).unwrap();
        assert_eq!(got[0].values::<f32>(), [[f32::INFINITY; 5], [3.0; 5]].concat(), "{profile}");
    }
}

#[test]
fn errors_are_tensorflows() {
    let zeros =
        |dims: &[usize]| HostTensor::floats(DType::F32, dims, &vec![0.0; dims.iter().product()]);
    let cases: &[(Node, &[usize], &[usize], &str)] = &[
        (
            matmul(DType::F32, false, false),
            &[2, 3],
            &[3],
            "In[0] and In[1] has different ndims: [2,3] vs. [3]",
        ),
        (
            matmul(DType::F32, false, false),
            &[1, 2, 3],
            &[1, 3, 3],
            "In[0] and In[1] ndims must be == 2: 3",
        ),
        (
            matmul(DType::F32, false, false),
            &[2, 3],
            &[4, 5],
            "Matrix size-incompatible: In[0]: [2,3], In[1]: [4,5]",
        ),
        (
            batched("BatchMatMulV2", DType::F32, false, false),
            &[3],
            &[3, 3],
            "In[0] ndims must be >= 2: 1",
        ),
        (
            batched("BatchMatMulV2", DType::F32, false, false),
            &[2, 3, 3],
            &[3, 3, 3],
            "In[0] and In[1] must have compatible batch dimensions: [2,3,3] vs. [3,3,3]",
        ),
        (
            batched("BatchMatMul", DType::F32, false, false),
            &[2, 3, 3],
            &[3, 3, 3],
            "In[0].dim(0) and In[1].dim(0) must be the same: [2,3,3] vs [3,3,3]",
        ),
    ];
    for (node, a, b, message) in cases {
        match session().run(node, &[zeros(a).into(), zeros(b).into()]) {
            Err(Error::InvalidArgument(m)) => assert!(m.contains(message), "{m}"),
            other => panic!("{message}: {other:?}"),
        }
    }
}

/// Operands and results that exceed a binding by far, by little, or only one of them; rows that
/// exceed it alone.
#[test]
fn tensors_beyond_one_binding() {
    let refused = numeric::bindings::within(2048, || {
        for shape in [
            [65, 33, 67],
            [130, 36, 132],
            [3, 700, 5],
            [700, 6, 3],
            [2, 5, 900],
            [64, 64, 64],
            [1, 900, 1],
        ] {
            for (ta, tb) in [(false, false), (true, false), (false, true), (true, true)] {
                under(Profile::LLVMPIPE, || check_once(DType::F32, shape, ta, tb, 0));
            }
        }
        for shape in [[65, 33, 67], [700, 7, 3], [3, 1300, 5], [1, 5, 1900], [40, 36, 72]] {
            for (dtype, ta, tb) in [
                (DType::F16, false, false),
                (DType::BF16, true, false),
                (DType::F16, false, true),
                (DType::BF16, true, true),
                (DType::F64, false, true),
            ] {
                under(Profile::NVIDIA, || check_once(dtype, shape, ta, tb, usize::from(ta)));
            }
        }
        // Chunks of a long contraction, whose sums are bound together.
        under(Profile::LLVMPIPE, || check_once(DType::F32, [3, 40_000, 8], true, false, 0));
    });
    assert_eq!(refused, 0);
}

#[test]
fn batches_beyond_one_binding() {
    let refused = numeric::bindings::within(4096, || {
        let mut random = Random::new(21);
        for (x, y, [m, k, n]) in [
            (&[40][..], &[40][..], [5, 7, 9]),
            (&[3, 1], &[1, 4], [40, 20, 24]),
            (&[6], &[1], [30, 40, 33]),
            (&[1, 2], &[3, 1], [8, 300, 12]),
        ] {
            for dtype in [DType::F32, DType::F16] {
                for (ta, tb) in [(false, false), (true, true)] {
                    let dims_x = [x, &swapped(m, k, ta)[..]].concat();
                    let dims_y = [y, &swapped(k, n, tb)[..]].concat();
                    let (a, av) = random.tensor(dtype, &dims_x);
                    let (b, bv) = random.tensor(dtype, &dims_y);
                    let batch = tensorflow_wgpu::layout::broadcast_dims(x, y).unwrap();
                    let want: Vec<f64> = (0..batch.iter().product())
                        .flat_map(|z| {
                            let (i, j) = (
                                products::permuted(z, &batch, x),
                                products::permuted(z, &batch, y),
                            );
                            let (a, b) = (&av[i * m * k..][..m * k], &bv[j * k * n..][..k * n]);
                            product(a, b, [m, k, n], ta, tb)
                        })
                        .collect();
                    let what = format!("{dtype} {x:?} {y:?} {m}x{k}x{n} {ta} {tb}");
                    let node = batched("BatchMatMulV2", dtype, ta, tb);
                    let got = session().run(&node, &[a.into(), b.into()]).expect(&what);
                    assert_close(&got[0], &want, k as f64, &what);
                }
            }
        }
    });
    assert_eq!(refused, 0);
}
