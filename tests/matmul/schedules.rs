//! Persistent workgroups and stream-K, which adapters with many workgroups choose for large
//! products: here with few workgroups, for small ones.

use tensorflow_wgpu::device::{Cooperative, MatrixSize, Profile, Schedule, Verdict};
use tensorflow_wgpu::kernels::contract::tables;
use tensorflow_wgpu::kernels::contract::tile::Tile;
use tensorflow_wgpu::layout::Iteration;
use tensorflow_wgpu::{DType, HostTensor};

use super::numeric::bindings::{scheduling, under};
use super::numeric::{Random, assert_close, session};
use super::{batched, check_once, complex, emulated, matmul, offering, product, swapped, tile_of};

/// The schedules other than one workgroup for each tile.
const BOTH: [Schedule; 2] = [Schedule::Persistent, Schedule::StreamK];

/// Tiles that support schedules, without those of cooperative matrices.
fn tiles() -> impl Iterator<Item = &'static Tile> {
    tables::all().filter(|t| t.steps(1).is_some())
}

/// A tile of 16 rows of 16 invocations.
fn square() -> &'static Tile {
    tiles().find(|t| t.m() == 64 && t.n() == 64).expect("a tile of 64 rows and columns")
}

/// Six tiles of three steps for five workgroups, or for more of fewer invocations, with edges in
/// all directions.
#[test]
fn every_tile_of_workgroup_memory() {
    for (i, tile) in tiles().enumerate() {
        let shape = [2 * tile.m() + 3, 45, tile.n() + 5];
        let vec4s = [2 * tile.m() + 4, 44, tile.n() + 8];
        let cases = [
            (DType::F32, vec4s, false, false),
            (DType::F16, vec4s, true, true),
            (DType::BF16, shape, true, false),
            (DType::F32, shape, false, true),
            (DType::F16, shape, false, false),
            (DType::BF16, vec4s, false, true),
        ];
        for (j, schedule) in BOTH.into_iter().enumerate() {
            for (dtype, shape, ta, tb) in [cases[(i + j) % 6], cases[(i + 3 - j) % 6]] {
                let profile = scheduling(schedule, tile.id(), 5);
                under(profile, || check_once(dtype, shape, ta, tb, 0));
            }
        }
    }
}

#[test]
fn other_types() {
    let tile = square();
    for schedule in BOTH {
        under(scheduling(schedule, tile.id(), 4), || {
            check_once(DType::F64, [130, 45, 67], false, false, 0);
            check_once(DType::F64, [67, 44, 132], true, true, 0);
        });
        for dtype in session().supported([DType::C64, DType::C128]) {
            let [m, k, n] = [67, 45, 130];
            let mut random = Random::new(3);
            let (a, av) = complex::complex_or_real(&mut random, dtype, &[m, k]);
            let (b, bv) = complex::complex_or_real(&mut random, dtype, &[k, n]);
            let parts = |v: &[(f64, f64)]| -> [Vec<f64>; 2] {
                [v.iter().map(|v| v.0).collect(), v.iter().map(|v| v.1).collect()]
            };
            let ([ar, ai], [br, bi]) = (parts(&av), parts(&bv));
            let times = |x: &[f64], y: &[f64]| product(x, y, [m, k, n], false, false);
            let (rr, ii, ri, ir) =
                (times(&ar, &br), times(&ai, &bi), times(&ar, &bi), times(&ai, &br));
            let want: Vec<_> = (0..m * n).map(|i| (rr[i] - ii[i], ri[i] + ir[i])).collect();
            let got = under(scheduling(schedule, tile.id(), 4), || {
                session().run(&matmul(dtype, false, false), &[a.into(), b.into()])
            });
            let what = format!("{dtype} {schedule:?}");
            let got = got.expect(&what);
            complex::assert_complex_close(&got[0], &want, 2.0 * k as f64, &what);
        }
    }
}

/// A tile that all workgroups share, more workgroups than steps, fewer steps than one iteration
/// takes, one workgroup, and a sum that is split because of its length.
#[test]
fn extremes() {
    let tile = square();
    for schedule in BOTH {
        for (shape, workgroups) in [
            ([61, 200, 62], 5),
            ([64, 40, 64], 50),
            ([130, 7, 260], 3),
            ([200, 1, 70], 4),
            ([130, 50, 70], 1),
            ([70, 20_000, 5], 3),
        ] {
            let profile = scheduling(schedule, tile.id(), workgroups);
            under(profile, || {
                check_once(DType::F32, shape, false, true, 0);
                check_once(DType::F16, shape, true, false, 1);
            });
        }
    }
}

#[test]
fn batches_broadcast() {
    let tile = square();
    let mut random = Random::new(11);
    let cases: [(&[usize], &[usize]); 3] = [(&[3], &[1]), (&[2, 1], &[1, 3]), (&[], &[2])];
    for (i, (x, y)) in cases.into_iter().enumerate() {
        let ([m, k, n], ta, tb) = ([67, 37, 34], i == 1, i == 2);
        let dtype = [DType::F32, DType::F16, DType::BF16][i];
        let (a, av) = random.tensor(dtype, &[x, &swapped(m, k, ta)[..]].concat());
        let (b, bv) = random.tensor(dtype, &[y, &swapped(k, n, tb)[..]].concat());
        let batch = tensorflow_wgpu::layout::broadcast_dims(x, y).expect("shapes that broadcast");
        let walk = Iteration::over(&batch);
        let mut want = Vec::new();
        for z in 0..walk.len() {
            let i = super::products::permuted(z, &batch, x) * m * k;
            let j = super::products::permuted(z, &batch, y) * k * n;
            want.extend(product(&av[i..i + m * k], &bv[j..j + k * n], [m, k, n], ta, tb));
        }
        for schedule in BOTH {
            let what = format!("{dtype} {x:?} {y:?} {schedule:?}");
            let inputs = [a.clone().into(), b.clone().into()];
            let got = under(scheduling(schedule, tile.id(), 5), || {
                session().run(&batched("BatchMatMulV2", dtype, ta, tb), &inputs)
            })
            .expect(&what);
            assert_close(&got[0], &want, k as f64, &what);
        }
    }
}

/// Emulated matrices of f16 and of f32, and subgroups so large that blocks take several rounds.
#[test]
fn cooperative_matrices() {
    if !super::emulates_matrices() {
        return;
    }
    let (square, other) = (MatrixSize::new(16, 16, 16), MatrixSize::new(8, 8, 8));
    let two = tensorflow_wgpu::device::Means::TwoSubgroups;
    let cases = [
        (emulated(square, DType::F16), DType::F16),
        (emulated(other, DType::F32), DType::BF16),
        (Cooperative { means: two, ..emulated(square, DType::F16) }, DType::F16),
    ];
    for (offered, dtype) in cases {
        for schedule in BOTH {
            let profile = Profile {
                schedule: Some(schedule),
                resident_workgroups: 2,
                ..offering(offered, tile_of(offered))
            };
            let verdict = under(profile, || {
                check_once(dtype, [70, 70, 132], false, true, 0);
                check_once(dtype, [130, 40, 67], true, false, 0);
                session().device.matrix_units().verdict(offered.element)
            });
            assert_eq!(verdict, Some(Verdict::Pays { lanes: offered.lanes }), "{offered:?}");
        }
    }
}

/// The result has the same bytes each time, whichever workgroups come first, and a second dispatch
/// if tiles are split.
#[test]
fn results_are_the_same_each_time() {
    // Too short for split-K.
    let [m, k, n] = [130, 250, 70];
    let mut random = Random::new(29);
    let (a, av) = random.tensor(DType::F32, &[m, k]);
    let (b, bv) = random.tensor(DType::F32, &[k, n]);
    let want = product(&av, &bv, [m, k, n], false, false);
    let run = |schedule| -> (HostTensor, u64) {
        under(scheduling(schedule, square().id(), 5), || {
            let mut session = session();
            let before = session.device.statistics().dispatches;
            let inputs = [a.clone().into(), b.clone().into()];
            let got = session.run(&matmul(DType::F32, false, false), &inputs).expect("a product");
            (got[0].clone(), session.device.statistics().dispatches - before)
        })
    };
    let (whole, dispatches) = run(Schedule::DataParallel);
    assert_eq!(run(Schedule::Persistent), (whole, dispatches), "the order of sums is the same");
    let (first, cut) = run(Schedule::StreamK);
    assert_eq!(cut, dispatches + 1);
    assert_close(&first, &want, k as f64, "stream-K");
    for _ in 0..10 {
        assert_eq!(run(Schedule::StreamK).0, first);
    }
}
