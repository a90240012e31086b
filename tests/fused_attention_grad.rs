//! `_WgpuFusedAttentionGrad` behind `_WgpuFusedAttention`, against plain f64, with the forms of
//! software adapters and of GPUs.

mod attention_case;
#[expect(dead_code, reason = "the comparison of sums is for contractions")]
mod numeric;

use attention_case::{Case, SCALE};
use numeric::bindings::like;
use numeric::{Random, epsilon, session};
use tensorflow_wgpu::DType::*;
use tensorflow_wgpu::device::{Capabilities, Profile};
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{Error, HostTensor};

/// The node of the gradient.
fn node(case: &Case) -> Node {
    let extra: Vec<_> = case.extra.iter().map(|(t, _)| *t).collect();
    Node::new("_WgpuFusedAttentionGrad")
        .attr("T", case.dtype)
        .attr("Textra", &extra[..])
        .attr("layout", case.layout)
        .attr("scale", SCALE)
        .attr("mask", case.mask)
        .attr("keep", case.keep)
        .attr("fill", case.fill)
        .attr("causal", case.causal)
        .attr("zero_masked", case.zero_masked)
}

/// Gradients of query, key and value, and for each element the sum of the absolute values of its
/// summands.
struct Gradients {
    values: [Vec<f64>; 3],
    sizes: [Vec<f64>; 3],
}

/// The gradients by their definition: those of the weights, of the softmax, of the products.
fn reference(case: &Case, inputs: &[HostTensor], gradient: &HostTensor) -> Gradients {
    let [batch, heads, rows, keys, depth, width] = case.sizes;
    let [q, k, v] = [0, 1, 2].map(|i| inputs[i].to_f64());
    let g = gradient.to_f64();
    let at = |b: usize, h: usize, t: usize, positions: usize, width: usize| match case.layout {
        "BTNH" => ((b * positions + t) * heads + h) * width,
        _ => ((b * heads + h) * positions + t) * width,
    };
    let extra = inputs.get(3).map(|t| {
        let dims: Vec<usize> =
            std::iter::repeat_n(1, 4 - t.dims.len()).chain(t.dims.iter().copied()).collect();
        let values: Vec<f64> = if t.dtype == Bool {
            t.bytes.iter().map(|b| f64::from(*b)).collect()
        } else {
            t.to_f64()
        };
        (dims, values)
    });
    let zeros = || [q.len(), k.len(), v.len()].map(|n| vec![0.0; n]);
    let (mut values, mut sizes) = (zeros(), zeros());
    for (b, h, t) in
        (0..batch * heads * rows).map(|i| (i / rows / heads, i / rows % heads, i % rows))
    {
        let (q_at, g_at) = (at(b, h, t, rows, depth), at(b, h, t, rows, width));
        let of_key = |s: usize| {
            let k_at = at(b, h, s, keys, depth);
            let product: f64 =
                (0..depth).map(|i| q[q_at + i] * k[k_at + i]).sum::<f64>() * f64::from(SCALE);
            let mask = extra.as_ref().map(|(dims, values)| {
                values[[b, h, t, s].iter().zip(dims).fold(0, |at, (i, n)| at * n + i % n)]
            });
            let bias = if case.mask == "bias" { mask.unwrap() } else { 0.0 };
            let chosen = case.mask == "bias" || mask.is_none_or(|m| (m != 0.0) == case.keep);
            let kept = chosen && (!case.causal || s <= t);
            let score = match (kept, case.mask) {
                (true, _) => product + bias,
                (false, "penalty") => product + f64::from(case.fill),
                (false, _) => f64::from(case.fill),
            };
            (kept, score)
        };
        let (kept, scores): (Vec<bool>, Vec<f64>) = (0..keys).map(of_key).unzip();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let powers: Vec<f64> = scores.iter().map(|x| (x - largest).exp()).collect();
        let total: f64 = powers.iter().sum();
        let weights: Vec<f64> = powers.iter().map(|x| x / total).collect();
        let zeroed = |s: usize| case.zero_masked && !kept[s];
        let changes: Vec<f64> = (0..keys)
            .map(|s| {
                let v_at = at(b, h, s, keys, width);
                if zeroed(s) { 0.0 } else { (0..width).map(|i| g[g_at + i] * v[v_at + i]).sum() }
            })
            .collect();
        let mean: f64 = weights.iter().zip(&changes).map(|(w, c)| w * c).sum();
        for (s, weight) in weights.iter().enumerate() {
            let (k_at, v_at) = (at(b, h, s, keys, depth), at(b, h, s, keys, width));
            let counts = kept[s] || case.mask == "penalty";
            let change = if counts { weight * (changes[s] - mean) * f64::from(SCALE) } else { 0.0 };
            let size = weight * (changes[s].abs() + mean.abs() + 1.0) * f64::from(SCALE);
            for i in 0..depth {
                values[0][q_at + i] += change * k[k_at + i];
                values[1][k_at + i] += change * q[q_at + i];
                sizes[0][q_at + i] += size * k[k_at + i].abs();
                sizes[1][k_at + i] += size * q[q_at + i].abs();
            }
            for i in (0..width).filter(|_| !zeroed(s)) {
                values[2][v_at + i] += weight * g[g_at + i];
                sizes[2][v_at + i] += weight * g[g_at + i].abs();
            }
        }
    }
    Gradients { values, sizes }
}

/// Runs the op and its gradient.
fn run(
    session: &mut Session,
    case: &Case,
    inputs: &[HostTensor],
    gradient: &HostTensor,
) -> Result<Vec<HostTensor>, Error> {
    let given =
        |inputs: &[HostTensor]| inputs.iter().cloned().map(Input::Value).collect::<Vec<_>>();
    let forward = case.node().attr("Tsaved", &[F32][..]);
    let results = session.run(&forward, &given(inputs))?;
    let extra = &inputs[3..];
    let all =
        [&inputs[..3], &[results[0].clone(), gradient.clone(), results[1].clone()], extra].concat();
    session.run(&node(case), &given(&all))
}

#[track_caller]
fn check(session: &mut Session, case: &Case, inputs: &[HostTensor], random: &mut Random) {
    check_on(&Profile::DISTINCT, session, case, inputs, random);
}

fn check_on(
    profiles: &[Profile],
    session: &Session,
    case: &Case,
    inputs: &[HostTensor],
    random: &mut Random,
) {
    let [_, _, rows, _, _, width] = case.sizes;
    let gradient = random.tensor(case.dtype, &case.dims(rows, width)).0;
    let wanted = reference(case, inputs, &gradient);
    for &profile in profiles {
        let got = run(&mut like(session, profile), case, inputs, &gradient).unwrap();
        assert_eq!(got.len(), 3);
        for (which, got) in got.iter().enumerate() {
            assert_eq!((got.dtype, &got.dims), (case.dtype, &inputs[which].dims), "{case:?}");
            let (values, sizes) = (&wanted.values[which], &wanted.sizes[which]);
            for (i, (g, (w, size))) in got.to_f64().iter().zip(values.iter().zip(sizes)).enumerate()
            {
                // The input from the forward pass is rounded to its type.
                let tolerance = epsilon(case.dtype) * (w.abs() + size) + 4e-6 * size.max(1.0);
                assert!(
                    (g - w).abs() <= tolerance,
                    "{case:?} {profile}: gradient {which}, element {i} is {g}, not {w}"
                );
            }
        }
    }
}

/// Odd sizes, single rows and keys, several tiles, every width of a tile, rows that are no whole
/// words.
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
    let mut session = session();
    let mut random = Random::new(11);
    for dtype in [F32, F16, BF16] {
        for layout in ["BNTH", "BTNH"] {
            for sizes in if dtype == F32 { SIZES } else { &SIZES[2..5] } {
                let case = Case::plain(dtype, layout, *sizes);
                let inputs = case.inputs(&mut random);
                check(&mut session, &case, &inputs, &mut random);
            }
        }
    }
}

#[test]
fn masks_of_every_kind_and_shape() {
    let mut session = session();
    let mut random = Random::new(12);
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
        let dtype = [F32, F16, BF16, F32, F32, F32, F32][i];
        let plain = Case::plain(dtype, ["BNTH", "BTNH"][i % 2], [2, 3, 9, 21, 16, 12]);
        let choice = plain.clone().masked("choice", Bool, shape);
        let cases = [
            plain.clone().masked("bias", [F32, BF16, F32, F16, F32, F32, F32][i], shape),
            Case { zero_masked: true, ..choice.clone() },
            Case { keep: false, causal: true, ..choice.clone() },
            Case { fill: -1.5, ..choice },
            Case { fill: -3.0, ..plain.clone().masked("penalty", Bool, shape) },
            Case { causal: true, ..plain.masked("bias", F32, shape) },
        ];
        for case in cases {
            let inputs = case.inputs(&mut random);
            check(&mut session, &case, &inputs, &mut random);
        }
    }
}

#[test]
fn causal_rows_see_no_later_key() {
    let mut session = session();
    let mut random = Random::new(13);
    for (rows, keys) in [(1, 1), (8, 8), (33, 33), (70, 70), (5, 40), (40, 5), (90, 130)] {
        for (fill, zero_masked) in [(-1e9, false), (-1e9, true), (-2.0, false), (-2.0, true)] {
            let plain = Case::plain(F32, "BTNH", [1, 2, rows, keys, 16, 16]);
            let case = Case { causal: true, fill, zero_masked, ..plain };
            let inputs = case.inputs(&mut random);
            check(&mut session, &case, &inputs, &mut random);
        }
    }
}

/// Enough rows for blocks of the forward pass, whose weights are all stored.
#[test]
fn blocks_of_causal_rows() {
    let mut session = session();
    let mut random = Random::new(15);
    let case = Case { causal: true, ..Case::plain(F32, "BTNH", [1, 2, 260, 260, 8, 128]) };
    let inputs = case.inputs(&mut random);
    check(&mut session, &case, &inputs, &mut random);
}

#[test]
fn rows_that_are_masked_altogether() {
    let mut session = session();
    let mut random = Random::new(14);
    for keys in [7, 1100] {
        let case =
            Case::plain(F32, "BNTH", [1, 1, 3, keys, 8, 8]).masked("choice", Bool, &[3, keys]);
        let mut inputs = case.inputs(&mut random);
        inputs[3].bytes[..keys].fill(0);
        for fill in [-1e9, -2.372_671e38] {
            for zero_masked in [false, true] {
                check(
                    &mut session,
                    &Case { fill, zero_masked, ..case.clone() },
                    &inputs,
                    &mut random,
                );
            }
        }
    }
}

#[test]
fn long_sides_and_large_scores() {
    let mut session = session();
    let mut random = Random::new(15);
    // Keys that the forward pass splits, and the same with many queries.
    for (dtype, sizes) in [
        (F32, [1, 1, 3, 2000, 16, 16]),
        (F16, [1, 2, 3, 1030, 6, 10]),
        (F32, [1, 1, 1500, 5, 8, 8]),
    ] {
        let case = Case::plain(dtype, "BNTH", sizes);
        let inputs = case.inputs(&mut random);
        check(&mut session, &case, &inputs, &mut random);
        let case = case.masked("choice", Bool, &[sizes[3]]);
        let inputs = case.inputs(&mut random);
        check(&mut session, &case, &inputs, &mut random);
    }
    let case = Case::plain(F32, "BNTH", [1, 1, 4, 21, 8, 8]);
    let mut inputs = case.inputs(&mut random);
    let large: Vec<f64> = inputs[0].to_f64().iter().map(|x| (x * 64.0).round()).collect();
    inputs[0] = HostTensor::floats(F32, &[1, 1, 4, 8], &large);
    let keys: Vec<f64> = inputs[1].to_f64().iter().map(|x| (x * 8.0).round() / 8.0).collect();
    inputs[1] = HostTensor::floats(F32, &[1, 1, 21, 8], &keys);
    check(&mut session, &case, &inputs, &mut random);
}

/// More rows than the tiles that loops may have, on both sides.
#[test]
fn sides_of_more_iterations_than_loops_may_have() {
    let session = session();
    let mut random = Random::new(16);
    for (dtype, loop_limit, sizes, causal) in [
        (F32, 60, [1, 2, 70, 150, 8, 8], false),
        (F16, 40, [2, 1, 131, 61, 6, 10], true),
        (BF16, 60, [1, 1, 100, 120, 8, 8], false),
    ] {
        let profile = Profile { loop_limit, ..Profile::NVIDIA };
        let case = Case { causal, ..Case::plain(dtype, "BTNH", sizes) };
        let case = if causal { case.masked("bias", F32, &[sizes[2], sizes[3]]) } else { case };
        let inputs = case.inputs(&mut random);
        check_on(&[profile], &session, &case, &inputs, &mut random);
    }
}

#[test]
fn the_same_operands_give_the_same_bits() {
    let session = session();
    let mut random = Random::new(17);
    let case = Case::plain(F32, "BTNH", [2, 2, 40, 70, 16, 16]);
    let (inputs, gradient) = (case.inputs(&mut random), random.tensor(F32, &case.dims(40, 16)).0);
    for profile in Profile::DISTINCT {
        let bits = || run(&mut like(&session, profile), &case, &inputs, &gradient).unwrap();
        let first = bits();
        assert!(
            (0..3).all(|_| bits().iter().zip(&first).all(|(a, b)| a.bytes == b.bytes)),
            "{profile}"
        );
    }
}

/// The program of the query makes the inputs of the other one, if the adapter has enough bindings.
#[test]
fn whole_rows_take_two_dispatches() {
    let profile = Profile { workgroups: 79, ..Profile::NVIDIA };
    let binds = session().device.capabilities().max_bindings;
    let few = Capabilities { max_bindings: 8, ..profile.capabilities };
    let narrow = Profile { capabilities: few, ..profile };
    let mut random = Random::new(21);
    for (profile, width, masked, wanted) in [
        (profile, 32, false, 2),
        (profile, 32, true, if binds < 9 { 3 } else { 2 }),
        (narrow, 32, false, 2),
        (narrow, 32, true, 3),
    ] {
        let mut case = Case::plain(F32, "BTNH", [2, 2, 40, 70, width, width]);
        if masked {
            case = case.masked("choice", Bool, &[2, 1, 1, 70]);
        }
        let inputs = case.inputs(&mut random);
        let gradient = random.tensor(F32, &case.dims(40, width)).0;
        let mut session = Session::under(profile).unwrap();
        let count = |session: &Session| session.device.statistics().dispatches;
        let before = count(&session);
        session
            .run(
                &case.node().attr("Tsaved", &[F32][..]),
                &inputs.iter().cloned().map(Input::Value).collect::<Vec<_>>(),
            )
            .unwrap();
        let forward = count(&session) - before;
        let before = count(&session);
        run(&mut session, &case, &inputs, &gradient).unwrap();
        assert_eq!(count(&session) - before - forward, wanted, "{case:?}");
    }
}

#[test]
fn misaligned_operands() {
    let mut session = session();
    session.misalign = 1;
    let mut random = Random::new(16);
    for dtype in [F32, F16, BF16] {
        let case = Case::plain(dtype, "BTNH", [2, 2, 9, 11, 16, 16]).masked(
            "choice",
            Bool,
            &[2, 1, 1, 11],
        );
        let inputs = case.inputs(&mut random);
        check(&mut session, &case, &inputs, &mut random);
    }
}

#[test]
fn empty_operands_and_lower_ranks() {
    let session = session();
    let ones = |dims: &[usize]| HostTensor::floats(F32, dims, &vec![1.0; dims.iter().product()]);
    let case = Case::plain(F32, "BNTH", [1; 6]);
    for profile in Profile::DISTINCT {
        let gradients = |q: &[usize], k: &[usize], v: &[usize]| {
            let result: Vec<usize> = q[..q.len() - 1].iter().chain(v.last()).copied().collect();
            let inputs = [ones(q), ones(k), ones(v)];
            let got = run(&mut like(&session, profile), &case, &inputs, &ones(&result)).unwrap();
            got.iter().zip([q, k, v]).for_each(|(got, dims)| assert_eq!(got.dims[..], *dims));
            got.iter().map(HostTensor::to_f64).collect::<Vec<_>>()
        };
        gradients(&[0, 2, 3, 4], &[0, 2, 5, 4], &[0, 2, 5, 4]);
        assert_eq!(gradients(&[2, 3, 4], &[2, 0, 4], &[2, 0, 6])[0], [0.0; 24]);
        assert_eq!(
            gradients(&[2, 0, 4], &[2, 5, 4], &[2, 5, 6])[1..],
            [vec![0.0; 40], vec![0.0; 60]]
        );
        // Without depth all weights are a fifth; without width nothing depends on anything.
        let even = gradients(&[2, 3, 0], &[2, 5, 0], &[2, 5, 6]).remove(2);
        assert!(even.iter().all(|x| (x - 0.6).abs() < 1e-6), "{even:?}");
        assert_eq!(
            gradients(&[2, 3, 4], &[2, 5, 4], &[2, 5, 0])[..2],
            [vec![0.0; 24], vec![0.0; 40]]
        );
        let flat = gradients(&[3, 4], &[5, 4], &[5, 2]);
        assert!(flat[0].iter().chain(&flat[1]).all(|x| x.abs() < 1e-6), "{flat:?}");
    }
}

#[test]
fn shapes_that_do_not_go_together() {
    // The saved tensors depend on the tiles.
    let mut session = like(&session(), Profile::LLVMPIPE);
    let case = Case::plain(F32, "BNTH", [1; 6]);
    let ones = |dims: &[usize]| {
        Input::Value(HostTensor::floats(F32, dims, &vec![1.0; dims.iter().product()]))
    };
    let mut error = |dims: [&[usize]; 6], wanted: &str| {
        let error = session.run(&node(&case), &dims.map(ones)).unwrap_err();
        assert_eq!(error, Error::InvalidArgument(format!("_WgpuFusedAttentionGrad: {wanted}")));
    };
    let (own, others): (&[usize], &[usize]) = (&[2, 3, 4], &[2, 5, 4]);
    error(
        [own, &[2, 5, 3], others, own, own, &[1]],
        "query and key must have the same depth, got query [2,3,4], key [2,5,3], value [2,5,4]",
    );
    error(
        [own, &[1, 5, 4], &[1, 5, 4], own, own, &[1]],
        "batches and heads must be equal, got query [2,3,4], key [1,5,4], value [1,5,4]",
    );
    error(
        [own, others, others, own, &[2, 3, 3], &[1]],
        "the result [2,3,4] and its gradient [2,3,3] must have the shape [2,3,4] that scores \
         without their mask give",
    );
    error(
        [own, others, others, own, own, &[7]],
        "the saved tensor [7] must have as many elements as [2,1,3,5]",
    );
}
