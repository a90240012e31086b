//! `_WgpuFusedJoinedMatMul`, several products of one left operand, against f64 sums: as one program
//! and, if that is slower or impossible, one after the other.

mod numeric;
#[path = "numeric/products.rs"]
#[expect(dead_code, reason = "there are no convolutions here")]
mod products;

use numeric::bindings::{dispatches, under};
use numeric::{Random, assert_close, either, rounded, session};
use products::{fused, matmul};
use tensorflow_wgpu::device::{Capabilities, Profile};
use tensorflow_wgpu::local::{Input, Node};
use tensorflow_wgpu::{DType, Error, HostTensor};

/// A joined product of `count` parts with an epilogue.
fn node(dtype: DType, count: usize, [ta, tb]: [bool; 2], epilogue: &str, extras: usize) -> Node {
    fused("_WgpuFusedJoinedMatMul", dtype, epilogue, &[])
        .attr("N", count as i64)
        .attr("T_extras", &vec![dtype; extras * count][..])
        .attr("adj_x", ta)
        .attr("adj_y", tb)
}

const PLAIN: &str = "x: T; c: 0; return x0";
const BIAS: &str = "x: T, T; c: 0; s0 = AddV2<T>(x0, x1); return s0";
const BOTH: &str = "x: T, T, T; c: 0; s0 = AddV2<T>(x0, x1); s1 = Mul<T>(s0, x2); return s1";

/// Runs `count` products of `a` with `b` of `[m, k, n]`, with a vector and perhaps a matrix for
/// each, and compares.
fn check(dtype: DType, [m, k, n]: [usize; 3], count: usize, flags: [bool; 2], epilogue: &str) {
    let [ta, tb] = flags;
    let extras = epilogue.matches(", T").count();
    let mut random = Random::new((m * 100 + k * 10 + n + count) as u64);
    let (a, av) = random.tensor(dtype, &if ta { [k, m] } else { [m, k] });
    let mut inputs: Vec<Input> = vec![a.into()];
    let rights: Vec<_> =
        (0..count).map(|_| random.tensor(dtype, &if tb { [n, k] } else { [k, n] })).collect();
    inputs.extend(rights.iter().map(|(b, _)| b.clone().into()));
    let mut operands = Vec::new();
    for _ in 0..count {
        let dims: [&[usize]; 2] = [&[n], &[m, n]];
        let own: Vec<_> = dims[..extras].iter().map(|dims| random.tensor(dtype, dims)).collect();
        inputs.extend(own.iter().map(|(t, _)| t.clone().into()));
        operands.push(own);
    }
    let what = format!("{count} of {m}x{k}x{n} {dtype} {flags:?} {epilogue}");
    let got = session().run(&node(dtype, count, flags, epilogue, extras), &inputs).expect(&what);
    assert_eq!(got.len(), count, "{what}");
    for ((got, (_, bv)), own) in got.iter().zip(&rights).zip(&operands) {
        let product = matmul(&av, bv, [m, k, n], ta, tb);
        let value = |(i, x): (usize, &f64)| {
            let x = rounded(dtype, *x);
            let x = own.first().map_or(x, |(_, vector)| rounded(dtype, x + vector[i % n]));
            own.get(1).map_or(x, |(_, matrix)| x * matrix[i])
        };
        let want: Vec<f64> = product.iter().enumerate().map(value).collect();
        assert_eq!(got.dims[..], [m, n], "{what}");
        let largest = product.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
        assert_close(got, &want, k as f64 + 4.0 + either(dtype, largest + 1.0), &what);
    }
}

#[test]
fn products_of_one_left_operand() {
    let types = session().supported([DType::F32, DType::F16, DType::BF16, DType::F64]);
    for (turn, dtype) in types.into_iter().enumerate() {
        for (at, extents) in
            [[8, 16, 64], [65, 33, 66], [1, 40, 12], [7, 13, 5], [36, 8, 8], [130, 64, 68]]
                .into_iter()
                .enumerate()
        {
            let profile = Profile::DISTINCT[(turn + at) % Profile::DISTINCT.len()];
            let epilogue = [PLAIN, BIAS, BOTH][(turn + at) % 3];
            let flags = [at % 2 == 1, (turn + at) % 4 == 2];
            under(profile, || check(dtype, extents, 2 + at % 3, flags, epilogue));
        }
    }
}

/// A batch of the left operand is more rows.
#[test]
fn a_batch_of_rows() {
    let mut random = Random::new(3);
    let (a, av) = random.tensor(DType::F32, &[3, 5, 8]);
    let rights: Vec<_> = (0..2).map(|_| random.tensor(DType::F32, &[8, 12])).collect();
    let mut inputs: Vec<Input> = vec![a.into()];
    inputs.extend(rights.iter().map(|(b, _)| b.clone().into()));
    let got = session().run(&node(DType::F32, 2, [false; 2], PLAIN, 0), &inputs).expect("products");
    for (got, (_, bv)) in got.iter().zip(&rights) {
        assert_eq!(got.dims[..], [3, 5, 12]);
        assert_close(got, &matmul(&av, bv, [15, 8, 12], false, false), 12.0, "a batch");
    }
}

#[test]
fn small_products_are_one_dispatch() {
    let most = session().device.profile().capabilities.max_bindings;
    if most < 10 {
        println!("skipped: no program of three products with a bias each binds so little");
        return;
    }
    let profile = Profile { workgroups: 65, ..Profile::NVIDIA };
    let few = Capabilities { max_bindings: 8, ..profile.capabilities };
    for (profile, extents, epilogue, wanted) in [
        (profile, [64, 32, 64], BIAS, 1),
        // One product keeps the adapter busy.
        (Profile { workgroups: 1, ..profile }, [256, 32, 256], BIAS, 3),
        // Ten bindings, and seven.
        (Profile { capabilities: few, ..profile }, [64, 32, 64], BIAS, 3),
        (Profile { capabilities: few, ..profile }, [64, 32, 64], PLAIN, 1),
        // Thirteen.
        (profile, [1, 32, 64], BOTH, if most < 13 { 3 } else { 1 }),
    ] {
        let got = dispatches(profile, || check(DType::F32, extents, 3, [false; 2], epilogue));
        assert_eq!(got, wanted, "{extents:?} {epilogue}");
    }
}

#[test]
fn empty_products() {
    for extents in [[0, 4, 3], [2, 4, 0], [2, 0, 3]] {
        for epilogue in [PLAIN, BIAS] {
            check(DType::F32, extents, 2, [false; 2], epilogue);
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
    let plain = node(DType::F32, 2, [false; 2], PLAIN, 0);
    let error = run(&plain, &[&[2, 3], &[3, 4], &[5, 4]]);
    assert!(
        matches!(&error, Error::InvalidArgument(m) if m.contains("Matrix size-incompatible")),
        "{error}"
    );
    let many = node(DType::F32, 5, [false; 2], PLAIN, 0);
    let error = run(&many, &[&[2, 3], &[3, 4], &[3, 4], &[3, 4], &[3, 4], &[3, 4]]);
    assert!(
        matches!(&error, Error::InvalidArgument(m) if m.contains("_WgpuFusedJoinedMatMul: 5")),
        "{error}"
    );
}
