//! Random ops: TensorFlow's numbers (recorded from TensorFlow 2.21 on the CPU), streams of any length against the generator on the
//! host, the precision of normal numbers, statistics, and errors.

use tensorflow_wgpu::kernels::random::philox::Generator;
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor};

use DType::{BF16, F16, F32, I32, I64, U32, U64};

fn session() -> Session {
    Session::shared().expect("a Vulkan driver; on Debian install mesa-vulkan-drivers")
}

fn shape(dims: &[i64]) -> Input {
    HostTensor::i64(&[dims.len()], dims).into()
}

fn scalar(dtype: DType, v: i64) -> Input {
    if dtype == I32 { HostTensor::i32(&[], &[v as i32]) } else { HostTensor::i64(&[], &[v]) }.into()
}

fn seeds() -> Input {
    HostTensor::i64(&[2], &[-7, 1 << 40]).into()
}

/// Elements as numbers without sign.
fn bits(t: &HostTensor) -> Vec<u64> {
    match t.dtype.size() {
        2 => t.values::<u16>().into_iter().map(u64::from).collect(),
        4 => t.values::<u32>().into_iter().map(u64::from).collect(),
        _ => t.values::<u64>(),
    }
}

fn run(session: &mut Session, node: &Node, inputs: &[Input]) -> HostTensor {
    session.run(node, inputs).unwrap_or_else(|e| panic!("{node:?}: {e}")).remove(0)
}

/// The first version of a stateless op.
fn seeded(session: &mut Session, op: &str, dtype: DType, dims: &[i64]) -> HostTensor {
    run(session, &Node::new(op).attr("dtype", dtype), &[shape(dims), seeds()])
}

/// The second version, with key and counter on the device.
fn keyed(session: &mut Session, op: &str, dtype: DType, n: usize, generator: &Generator) -> HostTensor {
    let inputs: [Input; 4] = [
        shape(&[n as i64]),
        HostTensor::of(U64, &[1], &[generator.key_u64()]).into(),
        HostTensor::of(U64, &[2], &generator.counter_u64s()).into(),
        scalar(I32, 1),
    ];
    run(session, &Node::new(op).attr("dtype", dtype), &inputs)
}

/// Word `i` of the stream that starts at `generator`.
fn word(generator: &Generator, i: usize) -> u32 {
    let mut at = *generator;
    at.skip((i / 4) as u64);
    at.sample()[i % 4]
}

fn assert_ulps(got: f64, expected: f64, unit: f64, limit: f64, what: &str) {
    let error = (got - expected).abs() / unit;
    assert!(error <= limit, "{what}: got {got}, expected {expected}, {error} units in the last place");
}

/// One unit in the last place of a float of `dtype` near `v`.
fn ulp(dtype: DType, v: f64) -> f64 {
    let (digits, lowest) = match dtype {
        F16 => (10, -14),
        BF16 => (7, -126),
        _ => (23, -126),
    };
    2f64.powi((v.abs().log2().floor() as i32).max(lowest) - digits)
}

#[test]
fn key_and_counter_are_tensorflows() {
    let mut s = session();
    let out = s.run(&Node::new("StatelessRandomGetKeyCounterAlg"), &[seeds()]).unwrap();
    assert_eq!((out[0].dtype, &out[0].dims[..], bits(&out[0])), (U64, &[1][..], vec![0xa8dd_c117_4ce0_a76b]));
    assert_eq!((&out[1].dims[..], bits(&out[1])), (&[2][..], vec![0, 0xc85e_4c39_9afd_75b5]));
    assert_eq!(out[2], HostTensor::i32(&[], &[1]));
    assert_eq!(s.run(&Node::new("StatelessRandomGetKeyCounter"), &[seeds()]).unwrap(), out[..2]);
    assert_eq!(s.run(&Node::new("StatelessRandomGetAlg"), &[]).unwrap(), out[2..]);
    // int32 seeds are the same numbers.
    let small = |t: HostTensor| run(&mut session(), &Node::new("StatelessRandomGetKeyCounter"), &[t.into()]);
    assert_eq!(small(HostTensor::i32(&[2], &[-3, -4])), small(HostTensor::i64(&[2], &[-3, -4])));
    assert_eq!(bits(&small(HostTensor::i32(&[2], &[-3, -4]))), [13_066_606_938_343_528_177]);
}

#[test]
fn uniform_floats_are_tensorflows() {
    let mut s = session();
    let recorded: [(DType, [u64; 9]); 3] = [
        (
            F32,
            [
                0x3f67096e, 0x3f0b30fa, 0x3f20f90e, 0x3c172980, 0x3e9d60e8, 0x3f4cb266, 0x3de74ff0, 0x3e2968d0,
                0x3ca2bf40,
            ],
        ),
        (F16, [0x31b8, 0x2fd0, 0x3038, 0x38a6, 0x2b40, 0x34cc, 0x33f8, 0x3468, 0x39fa]),
        (BF16, [0x3edc, 0x3f7a, 0x3d60, 0x3f26, 0x3ee8, 0x3ecc, 0x3f7e, 0x3e50, 0x3f7a]),
    ];
    for (dtype, expected) in recorded {
        let got = seeded(&mut s, "StatelessRandomUniform", dtype, &[3, 3]);
        assert_eq!((&got.dims[..], got.dtype), (&[3, 3][..], dtype));
        assert_eq!(bits(&got), expected, "{dtype}");
    }
}

#[test]
fn normal_floats_are_tensorflows() {
    let mut s = session();
    let normal: [u32; 9] =
        [0xbdfba1b9, 0xbedf3ca3, 0x3d649840, 0x3f762e9f, 0xbfbb23ec, 0x3ef1210b, 0x3fe678ab, 0x3f8771a6, 0x3fe50168];
    let truncated: [u32; 9] =
        [0xbdfba1b9, 0xbedf3ca3, 0x3d649840, 0x3f762e9f, 0x3e976689, 0x3fe49882, 0x3eadbbb9, 0x3db033d3, 0xbdd166c8];
    for (op, recorded) in [("StatelessRandomNormal", normal), ("StatelessTruncatedNormal", truncated)] {
        for (dtype, limit) in [(F32, 4.0), (F16, 0.51), (BF16, 0.51)] {
            let got = seeded(&mut s, op, dtype, &[9]).to_f64();
            for (i, (got, expected)) in got.iter().zip(recorded).enumerate() {
                let expected = f64::from(f32::from_bits(expected));
                assert_ulps(*got, expected, ulp(dtype, expected), limit, &format!("{op} {dtype} {i}"));
            }
        }
    }
}

#[test]
fn integers_are_tensorflows() {
    let mut s = session();
    let full: [u64; 9] = [
        0x42c5987da3f384b7,
        0xe2812e53cad07c87,
        0x58665933e3a7583a,
        0x4b152d1a370e74ff,
        0xc60e1fa36a028afd,
        0xae598bf38d851a1b,
        0x586bd81a089687ad,
        0xe9a3ae8aa56e60cf,
        0xab58126059bbcada,
    ];
    for dtype in [I64, U64] {
        assert_eq!(bits(&seeded(&mut s, "StatelessRandomUniformFullInt", dtype, &[9])), full);
    }
    let halves: Vec<u64> = full.iter().flat_map(|v| [v & 0xffff_ffff, v >> 32]).take(9).collect();
    for dtype in [I32, U32] {
        assert_eq!(bits(&seeded(&mut s, "StatelessRandomUniformFullInt", dtype, &[9])), halves);
    }
    let mut bounded = |dtype, low, high| {
        let node = Node::new("StatelessRandomUniformInt").attr("dtype", dtype);
        bits(&run(&mut s, &node, &[shape(&[9]), seeds(), scalar(dtype, low), scalar(dtype, high)]))
    };
    let int32 =
        [0x23f384b7, 0xc2c5987d, 0x8ad07c87, 0xa2812e53, 0xa3a7583a, 0xd8665933, 0xb70e74ff, 0xcb152d1a, 0xea028afd];
    assert_eq!(bounded(I32, i64::from(i32::MIN), 1 << 30), int32);
    let int64 = [
        0xc2c5987da3f384b7,
        0xa2812e53cad07c87,
        0xd8665933e3a7583a,
        0xcb152d1a370e74ff,
        0x860e1fa36a028afd,
        0x2e598bf38d851a1b,
        0xd86bd81a089687ad,
        0xa9a3ae8aa56e60cf,
        0x2b58126059bbcada,
    ];
    assert_eq!(bounded(I64, i64::MIN, 1 << 62), int64);
    let small: Vec<u64> = full.iter().map(|v| ((v % 1000) as i64 - 500).cast_unsigned()).collect();
    assert_eq!(bounded(I64, -500, 500), small);
    let small: Vec<u64> = halves.iter().map(|v| u64::from(((v % 7) as u32).wrapping_sub(3))).collect();
    assert_eq!(bounded(I32, -3, 4), small);
}

/// Sizes around the group of a sample, of each width, from a counter that overflows into its upper half within the first samples.
#[test]
fn streams_of_any_length_follow_the_counter() {
    let mut s = session();
    for misalign in [0, 1] {
        s.misalign = misalign;
        for generator in [
            Generator { counter: [u32::MAX - 1, u32::MAX, u32::MAX, 5], key: [9, 8] },
            Generator { counter: [u32::MAX - 1, 3, 1, 2], key: [0xdead_beef, 0xffff_ffff] },
        ] {
            for n in [0, 1, 2, 3, 4, 5, 7, 8, 1027] {
                let words: Vec<u32> = (0..2 * n).map(|i| word(&generator, i)).collect();
                let got = keyed(&mut s, "StatelessRandomUniformFullIntV2", U32, n, &generator);
                assert_eq!(got.values::<u32>(), words[..n]);
                let got = keyed(&mut s, "StatelessRandomUniformFullIntV2", U64, n, &generator);
                let pairs: Vec<u64> = words.chunks(2).map(|p| u64::from(p[0]) | u64::from(p[1]) << 32).collect();
                assert_eq!(got.values::<u64>(), pairs);
                for (dtype, bits) in [(F32, 23), (F16, 10), (BF16, 7)] {
                    let got = keyed(&mut s, "StatelessRandomUniformV2", dtype, n, &generator).to_f64();
                    let scale = f64::from(1 << bits);
                    let expected: Vec<f64> =
                        words[..n].iter().map(|w| f64::from(w & ((1 << bits) - 1)) / scale).collect();
                    assert_eq!(got, expected, "{dtype} {n}");
                }
            }
        }
    }
}

/// More groups than one dimension of the grid has workgroups for, and more bytes than lavapipe binds at once.
#[test]
fn large_tensors() {
    let mut s = session();
    let generator = Generator { counter: [1, 2, 3, 4], key: [5, 6] };
    let n = (1 << 26) + 1_000_005;
    let got = keyed(&mut s, "StatelessRandomUniformV2", BF16, n, &generator).values::<half::bf16>();
    assert_eq!(got.len(), n);
    let window = 1 << 26;
    let probes = [0, 4 * 256 * 65_535, n - 1].into_iter().chain(window - 3..window + 9).chain((0..n).step_by(65_521));
    for i in probes {
        assert_eq!(got[i].to_f32(), (word(&generator, i) & 0x7f) as f32 / 128.0, "element {i}");
    }
}

/// Box and Muller's numbers as TensorFlow defines them, in double precision but for the rounding of the angle to float32.
fn box_muller(a: u32, b: u32) -> [f64; 2] {
    let unit = |w: u32| f64::from(w & 0x7f_ffff) / f64::from(1 << 23);
    let u = unit(a).max(f64::from(1e-7f32));
    let v = f64::from((2.0 * std::f64::consts::PI * unit(b)) as f32);
    let radius = (-2.0 * u.ln()).sqrt();
    [radius * v.sin(), radius * v.cos()]
}

#[test]
fn normal_numbers_are_precise() {
    let mut s = session();
    let generator = Generator { counter: [0, 0, 77, 0], key: [123, 456] };
    let n = 1 << 20;
    let got = keyed(&mut s, "StatelessRandomNormalV2", F32, n, &generator).to_f64();
    let (mut worst, mut sums) = (0f64, [0.0; 4]);
    for i in (0..n).step_by(2) {
        let expected = box_muller(word(&generator, i), word(&generator, i + 1));
        for k in 0..2 {
            worst = worst.max((got[i + k] - expected[k]).abs() / ulp(F32, expected[k]));
            for (power, sum) in sums.iter_mut().enumerate() {
                *sum += got[i + k].powi(power as i32 + 1) / n as f64;
            }
        }
    }
    println!("worst error {worst} units in the last place, moments {sums:?}");
    assert!(worst < 4.0, "{worst} units in the last place");
    let [mean, variance, skew, kurtosis] = sums;
    assert!(mean.abs() < 0.004 && (variance - 1.0).abs() < 0.006, "mean {mean}, variance {variance}");
    assert!(skew.abs() < 0.02 && (kurtosis - 3.0).abs() < 0.05, "third moment {skew}, fourth {kurtosis}");
}

/// The rejection loop on the host: each group of four takes candidates from 256 samples of its own.
#[test]
fn truncated_normal_numbers_follow_the_cpus_reservation() {
    let mut s = session();
    let generator = Generator { counter: [u32::MAX - 300, u32::MAX, 0, 0], key: [31, 41] };
    for (n, dtype) in [(1, F32), (6, F16), (7, BF16), (40_003, F32)] {
        let got = keyed(&mut s, "StatelessTruncatedNormalV2", dtype, n, &generator).to_f64();
        for group in 0..n.div_ceil(4) {
            let mut at = generator;
            at.skip(256 * group as u64);
            let mut accepted = (0..256)
                .flat_map(|_| {
                    let sample = at.sample();
                    at.skip(1);
                    [box_muller(sample[0], sample[1]), box_muller(sample[2], sample[3])].concat()
                })
                .filter(|v| v.abs() < 2.0);
            for (i, got) in got.iter().enumerate().skip(4 * group).take(4) {
                let expected = accepted.next().expect("256 samples suffice");
                let limit = if dtype == F32 { 4.0 } else { 0.51 };
                assert_ulps(*got, expected, ulp(dtype, expected), limit, &format!("{dtype} {i}"));
            }
        }
    }
}

#[test]
fn bounded_integers_are_even() {
    let mut s = session();
    let node = Node::new("StatelessRandomUniformInt").attr("dtype", I32);
    let inputs = [shape(&[300_000]), seeds(), scalar(I32, -1), scalar(I32, 5)];
    let mut counts = [0f64; 6];
    for v in run(&mut s, &node, &inputs).values::<i32>() {
        counts[usize::try_from(v + 1).unwrap()] += 1.0;
    }
    let chi_squared: f64 = counts.iter().map(|c| (c - 50_000.0).powi(2) / 50_000.0).sum();
    // 5 degrees of freedom: 20.5 is passed once in a thousand streams, and this stream is fixed.
    assert!(chi_squared < 20.5, "{chi_squared} for {counts:?}");
}

/// A run of a stateful op with seeds must give the head of TensorFlow's stream, which the generator on the host predicts further on.
#[test]
fn stateful_ops_start_as_tensorflow_does() {
    let mut s = session();
    let mut first = |op: &str, dtype: DType| {
        let node = Node::new(op).attr("dtype", dtype).attr("T", I32).attr("seed", 11).attr("seed2", 22);
        run(&mut s, &node, &[HostTensor::i32(&[1], &[6]).into()])
    };
    let uniform = [0x3dfad730, 0x3f7e5478, 0x3f134a94, 0x3eb35504, 0x3f52d8aa, 0x3ef0b578];
    assert_eq!(bits(&first("RandomUniform", F32)), uniform);
    let normal: [u32; 6] = [0xbdabfb4e, 0x40030b6b, 0x3f598173, 0xbf1e9100, 0x3dee02e1, 0xbf1cae76];
    let truncated: [u32; 6] = [0xbdabfb4e, 0x3f598173, 0xbf1e9100, 0x3dee02e1, 0xbfb8e4c7, 0x3f317b64];
    for (op, recorded) in [("RandomStandardNormal", normal), ("TruncatedNormal", truncated)] {
        for (got, expected) in first(op, F32).to_f64().into_iter().zip(recorded) {
            let expected = f64::from(f32::from_bits(expected));
            assert_ulps(got, expected, ulp(F32, expected), 4.0, op);
        }
    }
    let generator = Generator::seeded(11, 22);
    let node = Node::new("RandomUniformInt").attr("Tout", I64).attr("T", I64).attr("seed", 11).attr("seed2", 22);
    let got = run(&mut s, &node, &[shape(&[1]), scalar(I64, 10), scalar(I64, 20)]).values::<i64>();
    let draw = u64::from(word(&generator, 0)) | u64::from(word(&generator, 1)) << 32;
    assert_eq!(got, [10 + (draw % 10) as i64]);
}

#[test]
fn ops_without_seeds_differ() {
    let mut s = session();
    let node = Node::new("RandomUniform").attr("dtype", F32).attr("T", I64).attr("seed", 0).attr("seed2", 0);
    let (a, b) = (run(&mut s, &node, &[shape(&[8])]), run(&mut s, &node, &[shape(&[8])]));
    assert_ne!(a, b);
}

#[test]
fn one_kernel_continues_its_stream() {
    let s = session();
    let node = Node::new("RandomUniform").attr("dtype", F32).attr("T", I64).attr("seed", 11).attr("seed2", 22);
    let registration = s.registry().rows().iter().find(|r| r.op == "RandomUniform").unwrap();
    let kernel = (registration.create)(&node).unwrap();
    let expected: [[u64; 6]; 2] = [
        [0x3dfad730, 0x3f7e5478, 0x3f134a94, 0x3eb35504, 0x3f52d8aa, 0x3ef0b578],
        [0x3f33a112, 0x3f24b87a, 0x3f2072d8, 0x3ec87d5c, 0x3ee46a58, 0x3e156e08],
    ];
    let mut s = session();
    for expected in expected {
        let got = s.run_kernel(&*kernel, &[shape(&[6])]).unwrap().remove(0);
        assert_eq!(bits(&got), expected);
    }
}

#[test]
fn generators_keep_their_state_in_a_variable() {
    let mut s = session();
    let state = s.variable(&HostTensor::i64(&[5], &[-1, 2, 3, 9, 9])).unwrap();
    let mut generator = Generator { counter: [u32::MAX, u32::MAX, 2, 0], key: [3, 0] };
    let inputs = |n: i64| [Input::Variable(state), scalar(I64, 1), shape(&[n])];
    let node = |op: &str, dtype: DType| Node::new(op).attr("dtype", dtype);

    let got = run(&mut s, &node("StatefulUniform", F32), &inputs(6)).to_f64();
    for (i, v) in got.into_iter().enumerate() {
        assert_eq!(v, f64::from(word(&generator, i) & 0x7f_ffff) / f64::from(1 << 23));
    }
    generator.skip(6 * 256);
    assert_eq!(s.variable_value(state).unwrap().values::<i64>(), [1535, 3, 3, 9, 9]);

    let got = run(&mut s, &node("StatefulStandardNormalV2", F32), &inputs(1)).to_f64();
    let expected = box_muller(word(&generator, 0), word(&generator, 1))[0];
    assert_ulps(got[0], expected, ulp(F32, expected), 4.0, "normal");
    generator.skip(256);

    let got = run(&mut s, &node("StatefulTruncatedNormal", F16), &inputs(3)).to_f64();
    assert!(got.iter().all(|v| v.abs() <= 2.0), "{got:?}");
    generator.skip(3 * 256);

    let [resource, algorithm, dims] = inputs(4);
    let bounded = [resource, algorithm, dims, scalar(I32, 0), scalar(I32, 100)];
    let got = run(&mut s, &node("StatefulUniformInt", I32), &bounded).values::<i32>();
    assert_eq!(got, (0..4).map(|i| (word(&generator, i) % 100) as i32).collect::<Vec<_>>());
    generator.skip(4 * 256);

    let got = run(&mut s, &node("StatefulUniformFullInt", U32), &inputs(5)).values::<u32>();
    assert_eq!(got, (0..5).map(|i| word(&generator, i)).collect::<Vec<_>>());
    generator.skip(5 * 256);

    s.run(&Node::new("RngSkip"), &[Input::Variable(state), scalar(I64, 1), scalar(I64, 3)]).unwrap();
    generator.skip(3 * 256);
    let delta = HostTensor::of(U64, &[], &[2u64]);
    let got = run(&mut s, &Node::new("RngReadAndSkip"), &[Input::Variable(state), scalar(I32, 1), delta.into()]);
    let at = |g: &Generator| g.counter_u64s().map(u64::cast_signed);
    assert_eq!((got.values::<i64>(), &got.dims[..]), (vec![at(&generator)[0], at(&generator)[1], 3], &[3][..]));
    generator.skip(2 * 256);
    let [low, high] = at(&generator);
    assert_eq!(s.variable_value(state).unwrap().values::<i64>(), [low, high, 3, 9, 9]);

    assert!(run(&mut s, &node("StatefulUniform", BF16), &inputs(0)).bytes.is_empty());
    assert_eq!(s.variable_value(state).unwrap().values::<i64>(), [low, high, 3, 9, 9]);
}

/// The winner by the Gumbel-max trick for each sample, or None where rounding may decide.
fn gumbel_max(generator: &Generator, logits: &[f64], classes: usize, samples: usize) -> Vec<Option<i64>> {
    let rows = logits.len() / classes * samples;
    let score = |row: usize, class: usize| {
        let u = f64::from(word(generator, row * classes + class) & 0x7f_ffff) / f64::from(1 << 23);
        logits[row / samples * classes + class] - (-(u.max(2e-30)).ln()).ln()
    };
    (0..rows)
        .map(|row| {
            let mut scores: Vec<(f64, usize)> = (0..classes).map(|c| (score(row, c), c)).collect();
            scores.sort_by(|a, b| b.0.total_cmp(&a.0));
            (classes == 1 || scores[0].0 - scores[1].0 > 1e-4).then_some(scores[0].1 as i64)
        })
        .collect()
}

#[test]
fn classes_are_drawn_by_gumbel_max() {
    let mut s = session();
    let generator = Generator::scrambled([-7, 1 << 40]);
    for (batch, classes, samples) in [(1, 1, 3), (3, 5, 7), (2, 33, 40), (2, 1000, 5), (1, 129, 1)] {
        for (dtype, output, misalign) in [(F32, I64, 0), (F32, I32, 1), (F16, I64, 1), (F16, I32, 0)] {
            s.misalign = misalign;
            let values: Vec<f64> = (0..batch * classes).map(|i| f64::from((i * 37 % 17) as u32) / 4.0 - 2.0).collect();
            let logits = HostTensor::floats(dtype, &[batch, classes], &values);
            let node = Node::new("StatelessMultinomial").attr("T", dtype).attr("output_dtype", output);
            let got = run(&mut s, &node, &[logits.into(), scalar(I32, samples as i64), seeds()]);
            assert_eq!(&got.dims[..], [batch, samples]);
            let expected = gumbel_max(&generator, &values, classes, samples);
            let sure = expected.iter().filter(|e| e.is_some()).count();
            assert!(sure * 10 > expected.len() * 9, "{sure} of {} rows are decided", expected.len());
            for (row, (got, expected)) in got.to_i64().unwrap().into_iter().zip(expected).enumerate() {
                assert!(expected.is_none_or(|e| e == got), "row {row} of {batch}x{classes}: {got}, not {expected:?}");
            }
        }
    }
}

#[test]
fn classes_come_with_their_probabilities() {
    let mut s = session();
    let probabilities = [0.5, 0.0, 0.25, 0.125, 0.125];
    let logits: Vec<f32> = probabilities.iter().map(|p: &f32| p.ln()).collect();
    let node = Node::new("Multinomial").attr("T", F32).attr("output_dtype", I64).attr("seed", 3).attr("seed2", 4);
    // More outputs than one dimension of the grid has workgroups.
    let n = 100_000;
    let got = run(&mut s, &node, &[HostTensor::f32(&[1, 5], &logits).into(), scalar(I32, n)]).values::<i64>();
    for (class, p) in probabilities.into_iter().enumerate() {
        let share = got.iter().filter(|g| **g == class as i64).count() as f32 / n as f32;
        assert!((share - p).abs() < 0.006, "class {class}: {share}, not {p}");
    }
}

#[track_caller]
fn fails(node: &Node, inputs: &[Input], message: &str) {
    match session().run(node, inputs) {
        Err(Error::InvalidArgument(m)) => assert!(m.contains(message), "{m:?} lacks {message:?}"),
        other => panic!("{node:?} gave {other:?}"),
    }
}

#[test]
fn errors_are_worded_as_tensorflows() {
    let node = Node::new("StatelessRandomUniform").attr("dtype", F32);
    fails(&node, &[shape(&[2, -1]), seeds()], "Dimension -1 must be >= 0");
    fails(&node, &[scalar(I32, 3), seeds()], "shape must be a vector of {int32,int64}, got shape []");
    let matrix = || HostTensor::i32(&[1, 2], &[1, 2]);
    fails(&node, &[matrix().into(), seeds()], "shape must be a vector of {int32,int64}, got shape [1,2]");
    fails(
        &node,
        &[shape(&[1 << 40, 1 << 40]), seeds()],
        "Shape [1099511627776,1099511627776] would have more than 2**63",
    );
    fails(&node, &[shape(&[2]), HostTensor::i64(&[3], &[1, 2, 3]).into()], "seed must have shape [2], not [3]");
    fails(&Node::new("StatelessRandomGetKeyCounter"), &[scalar(I64, 3)], "seed must have shape [2], not []");

    let int = Node::new("StatelessRandomUniformInt").attr("dtype", I32);
    let inputs = |n: i64, low: i64| [shape(&[n]), seeds(), scalar(I32, low), scalar(I32, 5)];
    fails(&int, &inputs(3, 5), "Need minval < maxval, got 5 >= 5");
    assert!(run(&mut session(), &int, &inputs(0, 5)).bytes.is_empty(), "no bounds are needed for nothing");
    let vector = HostTensor::i32(&[1], &[1]);
    fails(&int, &[shape(&[3]), seeds(), vector.into(), scalar(I32, 5)], "minval must be 0-D, got shape [1]");

    let keyed = Node::new("StatelessRandomUniformV2").attr("dtype", F32);
    let u64s = |v: &[u64]| Input::from(HostTensor::of(U64, &[v.len()], v));
    fails(&keyed, &[shape(&[2]), u64s(&[1, 2]), u64s(&[1, 2]), scalar(I32, 1)], "key must have shape [1], not [2]");
    fails(
        &keyed,
        &[shape(&[2]), u64s(&[1]), u64s(&[1]), scalar(I32, 1)],
        "counter must be a vector with length at least 2",
    );
    fails(&keyed, &[shape(&[2]), u64s(&[1]), u64s(&[1, 2]), scalar(I32, 2)], "Unsupported algorithm id: 2");
    fails(&keyed, &[shape(&[2]), u64s(&[1]), u64s(&[1, 2]), matrix().into()], "input 3 (0-based) must have shape []");

    let multinomial = Node::new("StatelessMultinomial").attr("T", F32).attr("output_dtype", I64);
    let logits = |dims: &[usize]| Input::from(HostTensor::f32(dims, &vec![0.0; dims.iter().product()]));
    fails(&multinomial, &[logits(&[3]), scalar(I32, 1), seeds()], "logits should be a matrix, got shape [3]");
    fails(&multinomial, &[logits(&[1, 0]), scalar(I32, 1), seeds()], "num_classes should be positive, got 0");
    fails(&multinomial, &[logits(&[1, 3]), scalar(I32, -1), seeds()], "num_samples should be non-negative, got -1");
    fails(&multinomial, &[logits(&[1, 3]), shape(&[1]), seeds()], "num_samples should be a scalar, got shape [1]");
    fails(&multinomial, &[logits(&[1, 3]), scalar(I32, 1), scalar(I32, 1)], "seed must have shape [2], not []");

    let draw = Node::new("StatefulUniform").attr("dtype", F32);
    for (state, message) in [
        (HostTensor::i64(&[2], &[1, 2]), "For the Philox algorithm, the size of state must be at least 3; got 2"),
        (HostTensor::i64(&[1, 3], &[1, 2, 3]), "RNG state must have one and only one dimension, not 2"),
        (HostTensor::i32(&[3], &[1, 2, 3]), "dtype of RNG state variable must be int64, not int32"),
    ] {
        let mut s = session();
        let variable = s.variable(&state).unwrap();
        match s.run(&draw, &[Input::Variable(variable), scalar(I64, 1), shape(&[3])]) {
            Err(Error::InvalidArgument(m)) => assert!(m.contains(message), "{m}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(s.variable_value(variable).unwrap(), state, "a refused state stays as it is");
    }
    let mut s = session();
    let variable = s.variable(&HostTensor::i64(&[3], &[1, 2, 3])).unwrap();
    let threefry = s.run(&draw, &[Input::Variable(variable), scalar(I64, 2), shape(&[3])]);
    assert!(matches!(&threefry, Err(Error::Unimplemented(m)) if m.contains("ThreeFry")), "{threefry:?}");
}
