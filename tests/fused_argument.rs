//! `_WgpuFusedMatMulWithArgument`, a product whose epilogue has two values, against f64 sums: as
//! one program, as a product that is split, and with results that are not stored four elements at
//! once.

mod numeric;
#[path = "numeric/products.rs"]
#[expect(dead_code, reason = "there are no convolutions here")]
mod products;

use numeric::bindings::{dispatches, under};
use numeric::{Random, assert_close, either, rounded, session};
use products::{fused, matmul};
use tensorflow_wgpu::device::{Capabilities, Profile, Schedule};
use tensorflow_wgpu::local::{Input, Node};
use tensorflow_wgpu::{DType, Error, HostTensor};

/// A bias and a square, with the argument of the square.
const SQUARE: &str = "x: T, T; c: 0; s0 = AddV2<T>(x0, x1); s1 = Square<T>(s0); return s1, s0";
/// The same, multiplied by a tensor of the result's shape and by a parameter.
const GATED: &str = "x: T, T, T; c: 1; s0 = AddV2<T>(x0, x1); s1 = Mul<T>(s0, x2); s2 = \
                     Mul<T>(s1, c0); return s2, s0";

fn node(dtype: DType, flags: [bool; 2], epilogue: &str) -> Node {
    let constants = if epilogue == GATED { &[0.5_f32][..] } else { &[] };
    fused("_WgpuFusedMatMulWithArgument", dtype, epilogue, constants)
        .attr("adj_x", flags[0])
        .attr("adj_y", flags[1])
}

/// Runs a product of `[m, k, n]` and compares both results.
fn check(dtype: DType, [m, k, n]: [usize; 3], flags: [bool; 2], epilogue: &str) {
    let [ta, tb] = flags;
    let mut random = Random::new((m * 100 + k * 10 + n) as u64);
    let (a, av) = random.tensor(dtype, &if ta { [k, m] } else { [m, k] });
    let (b, bv) = random.tensor(dtype, &if tb { [n, k] } else { [k, n] });
    let (bias, biases) = random.tensor(dtype, &[n]);
    let (gate, gates) = random.tensor(dtype, &[m, n]);
    let mut inputs: Vec<Input> = vec![a.into(), b.into(), bias.into()];
    if epilogue == GATED {
        inputs.push(gate.into());
    }
    let what = format!("{m}x{k}x{n} {dtype} {flags:?} {epilogue}");
    let got = session().run(&node(dtype, flags, epilogue), &inputs).expect(&what);
    let product = matmul(&av, &bv, [m, k, n], ta, tb);
    let argument: Vec<f64> = (product.iter().enumerate())
        .map(|(i, x)| rounded(dtype, rounded(dtype, *x) + biases[i % n]))
        .collect();
    let value = |(x, gate): (&f64, &f64)| if epilogue == GATED { x * gate * 0.5 } else { x * x };
    let value: Vec<f64> = argument.iter().zip(&gates).map(value).collect();
    assert_eq!((&got[0].dims[..], &got[1].dims[..]), (&[m, n][..], &[m, n][..]), "{what}");
    let largest = argument.iter().fold(1.0, |largest: f64, x| largest.max(x.abs()));
    let terms = k as f64 + 4.0 + either(dtype, largest + 1.0);
    assert_close(&got[0], &value, 2.0 * terms * largest, &what);
    assert_close(&got[1], &argument, terms, &format!("the argument of {what}"));
}

#[test]
fn a_value_and_its_argument() {
    let types = session().supported([DType::F32, DType::F16, DType::BF16]);
    for (turn, dtype) in types.into_iter().enumerate() {
        for (at, extents) in [
            [8, 16, 64],
            [65, 33, 66],
            [1, 40, 12],
            [7, 13, 5],
            [36, 8, 8],
            [130, 64, 68],
            [9, 24, 2],
            [128, 256, 512],
        ]
        .into_iter()
        .enumerate()
        {
            let profile = Profile::DISTINCT[(turn + at) % Profile::DISTINCT.len()];
            let epilogue = [SQUARE, GATED][(turn + at) % 2];
            let flags = [at % 2 == 1, (turn + at) % 4 < 2];
            under(profile, || check(dtype, extents, flags, epilogue));
        }
    }
}

/// A contracted index that is split, and tiles that workgroups share.
#[test]
fn products_that_are_cut() {
    for profile in [Profile::NVIDIA, Profile::INTEL] {
        for dtype in session().supported([DType::F32, DType::F16]) {
            for extents in [[8, 3000, 8], [24, 20_000, 12], [10, 3000, 7]] {
                under(profile, || check(dtype, extents, [true, false], GATED));
            }
        }
    }
    for schedule in [Schedule::StreamK, Schedule::Persistent] {
        let shares = Profile { schedule: Some(schedule), ..Profile::NVIDIA };
        under(shares, || check(DType::F32, [17 * 128, 16, 17 * 128], [false; 2], SQUARE));
    }
}

/// Results that do not begin at a multiple of four elements.
#[test]
fn misaligned_results() {
    let mut session = session();
    session.misalign = 1;
    let (a, b) = (HostTensor::f32(&[2, 2], &[1.0, 2.0, 3.0, 4.0]), &[1.0, 0.0, 1.0, 0.0]);
    let b = HostTensor::f32(&[2, 4], &[&b[..], b].concat());
    let bias = HostTensor::f32(&[4], &[0.0, 1.0, 2.0, 3.0]);
    let inputs: Vec<Input> = vec![a.into(), b.into(), bias.into()];
    let got = session.run(&node(DType::F32, [false; 2], SQUARE), &inputs).unwrap();
    assert_eq!(got[1].to_f64(), [3.0, 1.0, 5.0, 3.0, 7.0, 1.0, 9.0, 3.0]);
    assert_eq!(got[0].to_f64(), [9.0, 1.0, 25.0, 9.0, 49.0, 1.0, 81.0, 9.0]);
}

#[test]
fn both_results_are_one_dispatch() {
    let profile = Profile { workgroups: 73, ..Profile::NVIDIA };
    let binds = |max_bindings| Capabilities { max_bindings, ..profile.capabilities };
    let (eight, six) = (binds(8), binds(6));
    for (profile, extents, epilogue, wanted) in [
        (profile, [128, 64, 256], SQUARE, 1),
        // The program that adds up the parts stores both results.
        (profile, [64, 16_384, 64], SQUARE, 2),
        // Columns that are not stored four at once.
        (profile, [128, 64, 255], SQUARE, 2),
        (Profile { capabilities: eight, ..profile }, [128, 64, 256], GATED, 1),
        // Seven bindings, with room for partial sums, are one too many.
        (Profile { capabilities: six, ..profile }, [128, 64, 256], GATED, 2),
    ] {
        let run = || check(DType::F32, extents, [false; 2], epilogue);
        assert_eq!(dispatches(profile, run), wanted, "{extents:?} {epilogue}");
    }
}

#[test]
fn empty_products() {
    for extents in [[0, 4, 4], [2, 4, 0], [2, 0, 4]] {
        for epilogue in [SQUARE, GATED] {
            check(DType::F32, extents, [false; 2], epilogue);
        }
    }
}

#[test]
fn nodes_that_do_not_fit_are_refused() {
    let run = |node: &Node, bias: &[usize]| {
        let matrix = |dims: &[usize]| -> Input {
            HostTensor::floats(DType::F32, dims, &vec![0.0; dims.iter().product()]).into()
        };
        session().run(node, &[matrix(&[2, 3]), matrix(&[3, 4]), matrix(bias)]).unwrap_err()
    };
    let one = SQUARE.replace("return s1, s0", "return s1");
    for (node, bias, said) in [
        (node(DType::F32, [false; 2], SQUARE), 3, "Incompatible shapes"),
        (node(DType::F32, [true, false], SQUARE), 4, "Matrix size-incompatible"),
        (node(DType::F32, [false; 2], &one), 4, "returns 1 values in place of 2"),
    ] {
        let error = run(&node, &[bias]);
        assert!(matches!(&error, Error::InvalidArgument(m) if m.contains(said)), "{error}: {said}");
    }
}
