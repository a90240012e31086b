//! Precision and statistics.

use tensorflow_wgpu::device::Profile;

use super::*;

/// Box and Muller's numbers by TensorFlow's definition, in double precision except for the rounding
/// of the angle to float32.
pub fn box_muller(a: u32, b: u32) -> [f64; 2] {
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
    assert!(
        mean.abs() < 0.004 && (variance - 1.0).abs() < 0.006,
        "mean {mean}, variance {variance}"
    );
    assert!(
        skew.abs() < 0.02 && (kurtosis - 3.0).abs() < 0.05,
        "third moment {skew}, fourth {kurtosis}"
    );
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

/// The winner by the Gumbel-max trick for each sample, or None where rounding may decide.
fn gumbel_max(
    generator: &Generator,
    logits: &[f64],
    classes: usize,
    samples: usize,
) -> Vec<Option<i64>> {
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
    let generator = Generator::scrambled([-7, 1 << 40]);
    // On the second device a dispatch draws from 1024 classes at most.
    let few = Profile { loop_limit: 100, ..session().device.profile() };
    let mut sessions = [session(), Session::under(few).expect("a device")];
    for (device, batch, classes, samples) in [
        (0, 1, 1, 3),
        (0, 3, 5, 7),
        (0, 2, 33, 40),
        (0, 2, 1000, 5),
        (0, 1, 129, 1),
        (1, 3, 2501, 4),
    ] {
        let s = &mut sessions[device];
        for (dtype, output, misalign) in
            [(F32, I64, 0), (F32, I32, 1), (F16, I64, 1), (F16, I32, 0)]
        {
            s.misalign = misalign;
            let values: Vec<f64> =
                (0..batch * classes).map(|i| f64::from((i * 37 % 17) as u32) / 4.0 - 2.0).collect();
            let logits = HostTensor::floats(dtype, &[batch, classes], &values);
            let node =
                Node::new("StatelessMultinomial").attr("T", dtype).attr("output_dtype", output);
            let got = run(s, &node, &[logits.into(), scalar(I32, samples as i64), seeds()]);
            assert_eq!(&got.dims[..], [batch, samples]);
            let expected = gumbel_max(&generator, &values, classes, samples);
            let sure = expected.iter().filter(|e| e.is_some()).count();
            assert!(
                sure * 10 > expected.len() * 9,
                "{sure} of {} rows are decided",
                expected.len()
            );
            for (row, (got, expected)) in
                got.to_i64().unwrap().into_iter().zip(expected).enumerate()
            {
                assert!(
                    expected.is_none_or(|e| e == got),
                    "row {row} of {batch}x{classes}: {got}, not {expected:?}"
                );
            }
        }
    }
}

#[test]
fn classes_come_with_their_probabilities() {
    let mut s = session();
    let probabilities = [0.5, 0.0, 0.25, 0.125, 0.125];
    let logits: Vec<f32> = probabilities.iter().map(|p: &f32| p.ln()).collect();
    let node = Node::new("Multinomial")
        .attr("T", F32)
        .attr("output_dtype", I64)
        .attr("seed", 3)
        .attr("seed2", 4);
    // More outputs than one dimension of the grid has workgroups.
    let n = 100_000;
    let got = run(&mut s, &node, &[HostTensor::f32(&[1, 5], &logits).into(), scalar(I32, n)])
        .values::<i64>();
    for (class, p) in probabilities.into_iter().enumerate() {
        let share = got.iter().filter(|g| **g == class as i64).count() as f32 / n as f32;
        assert!((share - p).abs() < 0.006, "class {class}: {share}, not {p}");
    }
}
