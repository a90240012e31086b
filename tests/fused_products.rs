//! Products that also compute the results of neighbouring nodes, against f64 sums:
//! `_WgpuFusedMatMulWithSums` with the sums of its right operand's columns,
//! `_WgpuFusedJoinedMatMulWithSums` with several products of one left operand,
//! `_WgpuFusedAddedMatMul` with sums of products.

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

const PLAIN: &str = "x: T; c: 0; return x0";
const SCALED: &str = "x: T, T; c: 0; s0 = Mul<T>(x0, x1); return s0";

fn with_sums(dtype: DType, turned: bool, epilogue: &str) -> Node {
    fused("_WgpuFusedMatMulWithSums", dtype, epilogue, &[]).attr("adj_x", turned)
}

/// Runs a product of `[m, k, n]` with its sums and compares.
fn check_sums(dtype: DType, [m, k, n]: [usize; 3], turned: bool, epilogue: &str) {
    let mut random = Random::new((m * 100 + k * 10 + n) as u64);
    let (a, av) = random.tensor(dtype, &if turned { [k, m] } else { [m, k] });
    let (b, bv) = random.tensor(dtype, &[k, n]);
    let (e, ev) = random.tensor(dtype, &[m, n]);
    let mut inputs: Vec<Input> = vec![a.into(), b.into()];
    if epilogue == SCALED {
        inputs.push(e.into());
    }
    let what = format!("{m}x{k}x{n} {dtype} {turned} {epilogue}");
    let got = session().run(&with_sums(dtype, turned, epilogue), &inputs).expect(&what);
    let mut want = matmul(&av, &bv, [m, k, n], turned, false);
    let largest = want.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
    if epilogue == SCALED {
        want.iter_mut().zip(&ev).for_each(|(x, e)| *x = rounded(dtype, *x) * e);
    }
    let sums: Vec<f64> = (0..n).map(|j| (0..k).map(|i| bv[i * n + j]).sum()).collect();
    assert_eq!((&got[0].dims[..], &got[1].dims[..]), (&[m, n][..], &[n][..]), "{what}");
    assert_close(&got[0], &want, k as f64 + 4.0 + either(dtype, largest), &what);
    assert_close(&got[1], &sums, k as f64 + 4.0, &format!("sums of {what}"));
}

#[test]
fn sums_of_columns() {
    let types = session().supported([DType::F32, DType::F16, DType::BF16, DType::F64]);
    for (turn, dtype) in types.into_iter().enumerate() {
        for (at, extents) in [
            [8, 16, 64],
            [65, 33, 66],
            [1, 40, 12],
            [7, 13, 5],
            [36, 8, 8],
            [130, 64, 68],
            [5, 9, 2],
            [128, 256, 512],
        ]
        .into_iter()
        .enumerate()
        {
            let profile = Profile::DISTINCT[(turn + at) % Profile::DISTINCT.len()];
            let epilogue = [PLAIN, SCALED][(turn + at) % 2];
            under(profile, || check_sums(dtype, extents, at % 2 == 1, epilogue));
        }
    }
}

/// A contracted index that is split: its parts have sums too.
#[test]
fn sums_of_parts() {
    for profile in [Profile::NVIDIA, Profile::INTEL] {
        for dtype in session().supported([DType::F32, DType::F16]) {
            for (extents, epilogue) in
                [([8, 3000, 8], PLAIN), ([24, 20_000, 12], SCALED), ([10, 3000, 7], PLAIN)]
            {
                under(profile, || check_sums(dtype, extents, true, epilogue));
            }
        }
    }
}

#[test]
fn sums_take_no_dispatch_of_their_own() {
    // No other test uses a device with this profile.
    let profile = Profile { workgroups: 67, ..Profile::NVIDIA };
    let count =
        |profile, extents| dispatches(profile, || check_sums(DType::F32, extents, true, PLAIN));
    assert_eq!(count(profile, [128, 64, 256]), 1);
    // The parts of both are added up at the end.
    assert_eq!(count(profile, [64, 16_384, 64]), 2);
    // Shares of tiles cannot have sums.
    let shares = Profile { schedule: Some(Schedule::StreamK), ..profile };
    assert_eq!(count(shares, [17 * 128, 32, 17 * 128]), 3);
}

/// Runs `count` products of one left operand with their sums and compares.
fn check_joined(dtype: DType, [m, k, n]: [usize; 3], count: usize, turned: bool) {
    let mut random = Random::new((m * 100 + k * 10 + n + count) as u64);
    let (a, av) = random.tensor(dtype, &if turned { [k, m] } else { [m, k] });
    let rights: Vec<_> = (0..count).map(|_| random.tensor(dtype, &[k, n])).collect();
    let inputs: Vec<Input> =
        std::iter::once(a).chain(rights.iter().map(|(b, _)| b.clone())).map(Into::into).collect();
    let what = format!("{count} of {m}x{k}x{n} {dtype} {turned}");
    let node = fused("_WgpuFusedJoinedMatMulWithSums", dtype, PLAIN, &[])
        .attr("N", count as i64)
        .attr("adj_x", turned);
    let got = session().run(&node, &inputs).expect(&what);
    assert_eq!(got.len(), 2 * count, "{what}");
    for (part, (_, bv)) in rights.iter().enumerate() {
        let want = matmul(&av, bv, [m, k, n], turned, false);
        let sums: Vec<f64> = (0..n).map(|j| (0..k).map(|i| bv[i * n + j]).sum()).collect();
        let (product, own) = (&got[part], &got[count + part]);
        assert_eq!((&product.dims[..], &own.dims[..]), (&[m, n][..], &[n][..]), "{what}");
        assert_close(product, &want, k as f64 + 4.0, &what);
        assert_close(own, &sums, k as f64 + 4.0, &format!("sums of {what}"));
    }
}

#[test]
fn sums_of_joined_products() {
    let types = session().supported([DType::F32, DType::F16, DType::BF16, DType::F64]);
    for (turn, dtype) in types.into_iter().enumerate() {
        for (at, extents) in
            [[8, 16, 64], [65, 33, 66], [1, 40, 12], [7, 13, 5], [130, 64, 68], [8, 3000, 8]]
                .into_iter()
                .enumerate()
        {
            let profile = Profile::DISTINCT[(turn + at) % Profile::DISTINCT.len()];
            under(profile, || check_joined(dtype, extents, 2 + at % 3, at % 2 == 1));
        }
    }
    for extents in [[0, 4, 3], [2, 4, 0], [2, 0, 3]] {
        check_joined(DType::F32, extents, 3, false);
    }
}

#[test]
fn joined_products_and_their_sums_are_one_dispatch() {
    if session().device.profile().capabilities.max_bindings < 10 {
        // No program of three products with their sums fits here.
        return;
    }
    let profile = Profile { workgroups: 71, ..Profile::NVIDIA };
    let few = Capabilities { max_bindings: 8, ..profile.capabilities };
    for (profile, extents, wanted) in [
        (profile, [128, 256, 128], 1),
        // One product keeps the adapter busy, so each makes its own sums.
        (Profile { workgroups: 1, ..profile }, [256, 32, 256], 3),
        // Ten bindings are two too many.
        (Profile { capabilities: few, ..profile }, [128, 256, 128], 3),
    ] {
        let run = || check_joined(DType::F32, extents, 3, true);
        assert_eq!(dispatches(profile, run), wanted, "{extents:?}");
    }
}

#[test]
fn operands_that_do_not_go_together_are_refused() {
    let (a, b) = (HostTensor::f32(&[4, 2], &[1.0; 8]), HostTensor::f32(&[4, 3], &[1.0; 12]));
    let run = |count: i64, epilogue: &str, inputs: &[&HostTensor]| {
        let node = fused("_WgpuFusedJoinedMatMulWithSums", DType::F32, epilogue, &[])
            .attr("N", count)
            .attr("adj_x", true);
        let inputs: Vec<Input> = inputs.iter().map(|t| (*t).clone().into()).collect();
        session().run(&node, &inputs).unwrap_err()
    };
    let batch = HostTensor::f32(&[1, 4, 3], &[1.0; 12]);
    let long = HostTensor::f32(&[5, 3], &[1.0; 15]);
    for (error, said) in [
        (run(5, PLAIN, &[&a, &b, &b, &b, &b, &b]), "5 products"),
        (run(2, SCALED, &[&a, &b, &b]), "for products of"),
        (run(2, PLAIN, &[&a, &b, &batch]), "takes matrices"),
        (run(2, PLAIN, &[&a, &b, &long]), "Matrix size-incompatible"),
    ] {
        assert!(matches!(&error, Error::InvalidArgument(m) if m.contains(said)), "{error}: {said}");
    }
}

/// Runs a sum of `count` products of `[m, k, n]` and compares.
fn check_added(
    dtype: DType,
    [m, k, n]: [usize; 3],
    count: usize,
    flags: [bool; 2],
    epilogue: &str,
) {
    let [ta, tb] = flags;
    let mut random = Random::new((m * 100 + k * 10 + n + count) as u64);
    let left: Vec<_> =
        (0..count).map(|_| random.tensor(dtype, &if ta { [k, m] } else { [m, k] })).collect();
    let right: Vec<_> =
        (0..count).map(|_| random.tensor(dtype, &if tb { [n, k] } else { [k, n] })).collect();
    let (e, ev) = random.tensor(dtype, &[m, n]);
    let mut inputs: Vec<Input> = left.iter().chain(&right).map(|(t, _)| t.clone().into()).collect();
    if epilogue == SCALED {
        inputs.push(e.into());
    }
    let what = format!("{count} of {m}x{k}x{n} {dtype} {flags:?} {epilogue}");
    let node = fused("_WgpuFusedAddedMatMul", dtype, epilogue, &[])
        .attr("N", count as i64)
        .attr("adj_x", ta)
        .attr("adj_y", tb);
    let got = session().run(&node, &inputs).expect(&what);
    let mut want = vec![0.0; m * n];
    for ((_, a), (_, b)) in left.iter().zip(&right) {
        let product = matmul(a, b, [m, k, n], ta, tb);
        want.iter_mut().zip(product).for_each(|(sum, x)| *sum += x);
    }
    let largest = want.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
    if epilogue == SCALED {
        want.iter_mut().zip(&ev).for_each(|(x, e)| *x = rounded(dtype, *x) * e);
    }
    assert_eq!(got[0].dims[..], [m, n], "{what}");
    assert_close(&got[0], &want, (k * count) as f64 + 4.0 + either(dtype, largest), &what);
}

#[test]
fn sums_of_products() {
    let types = session().supported([DType::F32, DType::F16, DType::BF16, DType::F64]);
    for (turn, dtype) in types.into_iter().enumerate() {
        for (at, extents) in [
            [8, 16, 64],
            [65, 33, 66],
            [1, 40, 12],
            [7, 13, 5],
            [36, 8, 8],
            [130, 64, 68],
            [9, 24, 2],
            [128, 256, 128],
        ]
        .into_iter()
        .enumerate()
        {
            let profile = Profile::DISTINCT[(turn + at) % Profile::DISTINCT.len()];
            let epilogue = [PLAIN, SCALED][(turn + at / 2) % 2];
            let flags = [at % 2 == 1, (turn + at) % 4 < 2];
            under(profile, || check_added(dtype, extents, 2 + at % 2, flags, epilogue));
        }
    }
}

#[test]
fn long_sums_of_products_are_cut() {
    for profile in [Profile::NVIDIA, Profile::INTEL] {
        for (extents, flags) in [([8, 3000, 8], [true, false]), ([24, 9000, 12], [false, true])] {
            under(profile, || check_added(DType::F32, extents, 3, flags, SCALED));
        }
    }
    // Shares of tiles.
    let shares = Profile { schedule: Some(Schedule::StreamK), ..Profile::NVIDIA };
    under(shares, || check_added(DType::F32, [17 * 128, 16, 17 * 128], 2, [false, true], PLAIN));
}

#[test]
fn a_sum_of_products_is_one_dispatch() {
    let profile = Profile { workgroups: 69, ..Profile::NVIDIA };
    let few = Capabilities { max_bindings: 6, ..profile.capabilities };
    for (profile, wanted) in [
        (profile, 1),
        // Seven bindings are one too many.
        (Profile { capabilities: few, ..profile }, 3),
    ] {
        let run = || check_added(DType::F32, [128, 64, 128], 3, [false, true], PLAIN);
        assert_eq!(dispatches(profile, run), wanted);
    }
}

#[test]
fn empty_products() {
    for extents in [[0, 4, 3], [2, 4, 0], [2, 0, 3]] {
        for epilogue in [PLAIN, SCALED] {
            check_added(DType::F32, extents, 3, [false; 2], epilogue);
        }
    }
    for extents in [[0, 4, 3], [2, 4, 0], [2, 0, 3]] {
        for epilogue in [PLAIN, SCALED] {
            check_sums(DType::F32, extents, false, epilogue);
        }
    }
}

#[test]
fn nodes_that_do_not_fit_are_refused() {
    let matrix =
        |dims: &[usize]| HostTensor::floats(DType::F32, dims, &vec![0.0; dims.iter().product()]);
    let run = |node: &Node, inputs: &[&[usize]]| {
        let inputs: Vec<Input> = inputs.iter().map(|dims| matrix(dims).into()).collect();
        session().run(node, &inputs).expect_err("a refusal")
    };
    let node = with_sums(DType::F32, false, PLAIN);
    for (inputs, text) in [
        ([&[2, 3][..], &[4, 4]], "Matrix size-incompatible"),
        ([&[2, 3], &[2, 3, 4]], "takes matrices"),
    ] {
        let error = run(&node, &inputs);
        assert!(matches!(&error, Error::InvalidArgument(m) if m.contains(text)), "{error}");
    }
}
