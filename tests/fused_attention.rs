//! `_WgpuFusedAttention` against plain f64, with the tiles of software adapters and of GPUs.

mod attention_case;
#[path = "fused_attention/matrices.rs"]
mod by_matrices;
#[path = "numeric/matrices.rs"]
mod matrices;
#[expect(dead_code, reason = "the comparison of sums is for contractions")]
mod numeric;

use attention_case::Case;
use numeric::bindings::like;
use numeric::{Random, session};
use tensorflow_wgpu::DType::*;
use tensorflow_wgpu::device::Profile;
use tensorflow_wgpu::local::{Input, Session};
use tensorflow_wgpu::{Error, HostTensor};

/// Odd sizes, single rows, several tiles, every width of a tile, rows that are no whole words.
const SIZES: &[[usize; 6]] = &[
    [1, 1, 1, 1, 1, 1],
    [2, 3, 1, 5, 8, 8],
    [1, 2, 9, 7, 5, 3],
    [2, 2, 17, 33, 16, 16],
    [1, 3, 8, 12, 30, 40],
    [1, 2, 70, 50, 64, 64],
    [2, 1, 5, 21, 80, 96],
    [1, 2, 10, 19, 128, 128],
    [1, 1, 9, 6, 256, 200],
    [2, 1, 5, 6, 300, 10],
];

#[test]
fn every_width_type_and_layout() {
    let session = session();
    let mut random = Random::new(1);
    for dtype in [F32, F16, BF16] {
        for layout in ["BNTH", "BTNH"] {
            let sizes = if dtype == F32 { SIZES } else { &SIZES[..5] };
            for sizes in sizes {
                let case = Case::plain(dtype, layout, *sizes);
                case.check(&session, &case.inputs(&mut random));
            }
        }
    }
}

#[test]
fn heads_that_share_keys() {
    let session = session();
    let mut random = Random::new(11);
    // Rows of several heads in one tile, of parts of heads, of one row each, with keys in splits.
    let sizes: [([usize; 6], usize); 6] = [
        ([2, 4, 9, 21, 16, 12], 2),
        ([1, 6, 70, 33, 64, 64], 3),
        ([2, 8, 1, 40, 64, 64], 4),
        ([1, 8, 1, 1500, 32, 32], 8),
        ([1, 4, 5, 7, 3, 5], 4),
        ([2, 6, 3, 9, 300, 10], 3),
    ];
    for (i, (sizes, group)) in sizes.into_iter().enumerate() {
        for layout in ["BNTH", "BTNH"] {
            let case = Case { group, ..Case::plain([F32, F16, BF16][i % 3], layout, sizes) };
            case.check(&session, &case.inputs(&mut random));
            let causal = Case { causal: true, ..case.clone() };
            causal.check(&session, &causal.inputs(&mut random));
            let [batch, heads, rows, keys, ..] = sizes;
            let masked = case.masked("bias", F32, &[batch, heads, rows, keys]);
            masked.check(&session, &masked.inputs(&mut random));
        }
    }
}

#[test]
fn soft_caps_bound_scores_before_masks() {
    let session = session();
    let mut random = Random::new(13);
    for (i, sizes) in
        [[2, 4, 9, 21, 16, 12], [1, 4, 1, 1500, 32, 32], [2, 4, 5, 24, 8, 8], [1, 4, 3, 9, 300, 10]]
            .into_iter()
            .enumerate()
    {
        let [batch, heads, rows, keys, ..] = sizes;
        let plain = Case { soft_cap: 2.0, ..Case::plain([F32, F16, BF16][i % 3], "BTNH", sizes) };
        let choice = plain.clone().masked("choice", Bool, &[batch, 1, rows, keys]);
        let cases = [
            plain.clone(),
            Case { group: 2, zero_masked: true, ..choice },
            plain.masked("bias", F32, &[batch, heads, rows, keys]),
        ];
        for case in cases {
            case.check(&session, &case.inputs(&mut random));
        }
    }
}

#[test]
fn heads_that_do_not_divide_are_refused() {
    let mut session = session();
    let case = Case { group: 2, ..Case::plain(F32, "BNTH", [1, 4, 3, 3, 8, 8]) };
    let mut inputs = case.inputs(&mut Random::new(1));
    inputs[1] = HostTensor::floats(F32, &[1, 3, 3, 8], &[0.0; 72]);
    inputs[2] = inputs[1].clone();
    let inputs: Vec<Input> = inputs.into_iter().map(Input::Value).collect();
    let error = session.run(&case.node(), &inputs).unwrap_err();
    assert_eq!(
        error,
        Error::InvalidArgument(
            "_WgpuFusedAttention: the heads of key and value must be equal and divide the query's, \
             got query \
             [1,4,3,8], key [1,3,3,8], value [1,3,3,8]"
                .to_owned()
        )
    );
}

#[test]
fn masks_of_every_kind_and_shape() {
    let session = session();
    let mut random = Random::new(2);
    let shapes: [&[usize]; 7] = [
        &[2, 3, 9, 21],
        &[2, 1, 9, 21],
        &[2, 1, 1, 21],
        &[1, 3, 9, 1],
        &[9, 21],
        &[21],
        &[2, 3, 1, 1],
    ];
    for (i, shape) in shapes.into_iter().enumerate() {
        for layout in ["BNTH", "BTNH"] {
            let plain = Case::plain([F32, F16, BF16][i % 3], layout, [2, 3, 9, 21, 16, 12]);
            let choice = plain.clone().masked("choice", Bool, shape);
            let cases = [
                plain.clone().masked("bias", [F32, F16, BF16][(i + 1) % 3], shape),
                Case { zero_masked: true, ..choice.clone() },
                Case { keep: false, causal: true, ..choice },
                Case { fill: -3.0, ..plain.clone().masked("penalty", Bool, shape) },
                Case { causal: true, ..plain.masked("bias", F32, shape) },
            ];
            for case in cases {
                case.check(&session, &case.inputs(&mut random));
            }
        }
    }
}

#[test]
fn causal_rows_see_no_later_key() {
    let session = session();
    let mut random = Random::new(3);
    for (rows, keys) in [(1, 1), (8, 8), (33, 33), (70, 70), (5, 40), (40, 5)] {
        for (fill, zero_masked) in [(-1e9, false), (-1e9, true), (-2.0, false), (-2.0, true)] {
            let plain = Case::plain(F32, "BTNH", [1, 2, rows, keys, 16, 16]);
            let case = Case { causal: true, fill, zero_masked, ..plain };
            case.check(&session, &case.inputs(&mut random));
        }
    }
}

/// Enough rows for blocks that skip later keys, and for an invocation for each row.
#[test]
fn blocks_of_causal_rows_leave_out_later_keys() {
    let session = session();
    let mut random = Random::new(11);
    for (dtype, layout, sizes) in [
        (F32, "BTNH", [1, 4, 260, 260, 16, 64]),
        (F32, "BNTH", [2, 2, 256, 400, 8, 64]),
        (F16, "BTNH", [1, 4, 300, 100, 8, 64]),
        (F32, "BTNH", [1, 4, 263, 271, 7, 66]),
    ] {
        let case = Case { causal: true, ..Case::plain(dtype, layout, sizes) };
        case.check(&session, &case.inputs(&mut random));
        let low = Case { fill: -1.0, ..case };
        low.check(&session, &low.inputs(&mut random));
    }
}

#[test]
fn masks_are_read_in_vec4s() {
    let session = session();
    let mut random = Random::new(12);
    let shapes: [&[usize]; 5] = [&[2, 3, 9, 24], &[2, 1, 1, 24], &[24], &[9, 24], &[9, 1]];
    for sizes in [[2, 3, 9, 24, 8, 12], [2, 3, 170, 24, 8, 12]] {
        for shape in
            shapes.iter().filter(|s| s.len() == 1 || s.contains(&sizes[2]) || s[s.len() - 2] == 1)
        {
            let plain = Case::plain(F32, "BTNH", sizes);
            let choice = plain.clone().masked("choice", Bool, shape);
            let cases = [
                plain.clone().masked("bias", F32, shape),
                plain.clone().masked("bias", F16, shape),
                Case { zero_masked: true, ..choice.clone() },
                Case { keep: false, causal: true, ..choice },
                Case { fill: -3.0, ..plain.masked("penalty", Bool, shape) },
            ];
            for case in cases {
                case.check(&session, &case.inputs(&mut random));
            }
        }
    }
}

#[test]
fn long_keys_are_split_and_merged() {
    let session = session();
    let mut random = Random::new(4);
    for (dtype, sizes) in [
        (F32, [1, 1, 1, 2000, 16, 16]),
        (F16, [1, 2, 3, 1030, 6, 10]),
        (BF16, [1, 1, 2, 777, 8, 5]),
        (F32, [1, 1, 1, 40_000, 4, 4]),
        (F32, [1, 1, 300, 900, 32, 32]),
    ] {
        let case = Case::plain(dtype, "BNTH", sizes);
        case.check(&session, &case.inputs(&mut random));
        let masked = case.clone().masked("choice", Bool, &[sizes[3]]);
        masked.check(&session, &masked.inputs(&mut random));
        let causal = Case { causal: true, ..case };
        causal.check(&session, &causal.inputs(&mut random));
    }
}

#[test]
fn fully_masked_rows_are_even_and_infinite_ones_are_not_numbers() {
    let session = session();
    let mut random = Random::new(5);
    for keys in [7, 1100] {
        let plain = Case::plain(F32, "BNTH", [1, 1, 3, keys, 8, 8]);
        let case = plain.clone().masked("choice", Bool, &[3, keys]);
        let mut inputs = case.inputs(&mut random);
        inputs[3].bytes[..keys].fill(0);
        for fill in [-1e9, -2.372_671e38] {
            for zero_masked in [false, true] {
                let case = Case { fill, zero_masked, ..case.clone() };
                case.check(&session, &inputs);
                assert_eq!(case.reference(&inputs)[0] == 0.0, zero_masked);
            }
        }
        // Row 0 is all minus infinity, row 1 begins with it, row 2 ends with it.
        let case = plain.masked("bias", F32, &[3, keys]);
        let mut inputs = case.inputs(&mut random);
        let bias = (0..3 * keys).map(|i| match (i / keys, i % keys) {
            (0, _) => f32::NEG_INFINITY,
            (1, s) if s < keys - 2 => f32::NEG_INFINITY,
            (2, s) if s > 1 => f32::NEG_INFINITY,
            _ => 0.5,
        });
        inputs[3] = HostTensor::of(F32, &[3, keys], &bias.collect::<Vec<_>>());
        assert!(case.reference(&inputs)[0].is_nan() && case.reference(&inputs)[8].is_finite());
        case.check(&session, &inputs);
    }
}

#[test]
fn large_scores_and_infinite_values_stay_where_they_are() {
    let session = session();
    let mut random = Random::new(6);
    let case = Case::plain(F32, "BNTH", [1, 1, 4, 21, 8, 8]);
    let mut inputs = case.inputs(&mut random);
    let large: Vec<f64> = inputs[0].to_f64().iter().map(|x| x * 300.0).collect();
    inputs[0] = HostTensor::floats(F32, &[1, 1, 4, 8], &large);
    case.check(&session, &inputs);
    let mut values = inputs[2].to_f64();
    values[20 * 8] = f64::INFINITY;
    inputs[2] = HostTensor::floats(F32, &[1, 1, 21, 8], &values);
    inputs[0] = HostTensor::floats(F32, &[1, 1, 4, 8], &[0.25; 32]);
    let wanted = case.reference(&inputs);
    for profile in Profile::DISTINCT {
        let inputs: Vec<Input> = inputs.iter().cloned().map(Input::Value).collect();
        let got = like(&session, profile).run(&case.node(), &inputs).unwrap()[0].to_f64();
        for row in 0..4 {
            assert_eq!(got[row * 8], f64::INFINITY, "{profile}");
            assert!((got[row * 8 + 1] - wanted[row * 8 + 1]).abs() < 1e-5, "{profile}");
        }
    }
}

#[test]
fn misaligned_operands() {
    let mut session = session();
    session.misalign = 1;
    let mut random = Random::new(7);
    for dtype in [F32, F16, BF16] {
        let case = Case::plain(dtype, "BTNH", [2, 2, 9, 11, 16, 16]).masked(
            "choice",
            Bool,
            &[2, 1, 1, 11],
        );
        case.check(&session, &case.inputs(&mut random));
    }
}

#[test]
fn batches_heads_and_rows_broadcast() {
    let mut session = session();
    let mut random = Random::new(8);
    let case = Case::plain(F32, "BNTH", [2, 3, 4, 5, 8, 8]);
    let inputs = case.inputs(&mut random);
    // One key matrix for all heads, one value matrix for all: repeated for the reference.
    let part = |t: &HostTensor, dims: &[usize]| {
        let n: usize = dims.iter().product();
        HostTensor::floats(F32, dims, &t.to_f64()[..n])
    };
    let repeated = |t: &HostTensor, times: usize, dims: &[usize]| {
        HostTensor::floats(F32, dims, &t.to_f64().repeat(times))
    };
    let value = part(&inputs[2], &[1, 1, 5, 8]);
    let row = part(&inputs[0], &[1, 1, 1, 8]);
    let full =
        [repeated(&row, 24, &[2, 3, 4, 8]), inputs[1].clone(), repeated(&value, 6, &[2, 3, 5, 8])];
    let bias = random.tensor(F32, &[2, 1, 4, 5]).0;
    let case = case.masked("bias", F32, &[2, 1, 4, 5]);
    let wanted = case.reference(&[&full[..], std::slice::from_ref(&bias)].concat());
    let node = case.node().attr("broadcast", true);
    let got = session.run(&node, &[row, inputs[1].clone(), value, bias].map(Input::Value)).unwrap();
    assert_eq!(got[0].dims[..], [2, 3, 4, 8]);
    assert!(got[0].to_f64().iter().zip(&wanted).all(|(g, w)| (g - w).abs() < 1e-5));
}

#[test]
fn empty_operands_and_lower_ranks() {
    let mut session = session();
    let zeros = |dims: &[usize]| {
        Input::Value(HostTensor::floats(F32, dims, &vec![1.0; dims.iter().product()]))
    };
    let node = Case::plain(F32, "BNTH", [1; 6]).node();
    let run = |session: &mut Session, q: &[usize], k: &[usize], v: &[usize]| {
        session.run(&node, &[zeros(q), zeros(k), zeros(v)]).unwrap().remove(0)
    };
    assert_eq!(
        run(&mut session, &[0, 2, 3, 4], &[0, 2, 5, 4], &[0, 2, 5, 4]).dims[..],
        [0, 2, 3, 4]
    );
    assert_eq!(run(&mut session, &[2, 3, 4], &[2, 0, 4], &[2, 0, 6]).to_f64(), [0.0; 36]);
    assert_eq!(run(&mut session, &[2, 3, 0], &[2, 5, 0], &[2, 5, 6]).to_f64(), [1.0; 36]);
    assert_eq!(run(&mut session, &[3, 4], &[5, 4], &[5, 2]).to_f64(), [1.0; 6]);
}

#[test]
fn shapes_that_do_not_go_together() {
    let mut session = session();
    let ones = |dims: &[usize]| {
        Input::Value(HostTensor::floats(F32, dims, &vec![1.0; dims.iter().product()]))
    };
    let node = Case::plain(F32, "BNTH", [1; 6]).node();
    for (q, k, v) in [
        (&[2, 3, 4][..], &[2, 5, 3][..], &[2, 5, 4][..]),
        (&[2, 3, 4], &[2, 5, 4], &[2, 6, 4]),
        (&[2, 3, 4], &[1, 5, 4], &[2, 5, 4]),
        (&[2, 3, 4], &[5, 4], &[2, 5, 4]),
        (&[4], &[4], &[4]),
    ] {
        let error = session.run(&node, &[ones(q), ones(k), ones(v)]).unwrap_err();
        assert!(
            matches!(&error, Error::InvalidArgument(m) if m.contains("_WgpuFusedAttention")),
            "{error}"
        );
    }
    let biased = node.clone().attr("mask", "bias");
    let error = session
        .run(&biased, &[ones(&[3, 4]), ones(&[5, 4]), ones(&[5, 4]), ones(&[2, 5])])
        .unwrap_err();
    assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
}
