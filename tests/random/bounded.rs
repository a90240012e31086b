//! Normal numbers between bounds: their range, their first moments against the density's, NaN for
//! invalid parameters, and the errors.

use super::*;

const CASES: [[f64; 4]; 8] = [
    // Mean, deviation, and bounds.
    [0.0, 1.0, -2.0, 2.0],
    [1.0, 2.0, -1.0, 0.5],
    [0.0, 1.0, 0.3, 0.9],
    [0.0, 1.0, 4.0, f64::INFINITY],
    [-3.0, 0.5, f64::NEG_INFINITY, -6.0],
    [5.0, 1.0, f64::NEG_INFINITY, 6.0],
    [0.0, 1.0, -0.5, 1.0],
    [0.0, 1.0, -9.0, -5.0],
];

/// Mean and variance of the density between the bounds, by its values at many places.
fn moments([mean, deviation, least, most]: [f64; 4]) -> [f64; 2] {
    let (low, high) = ((least - mean) / deviation, (most - mean) / deviation);
    let near = if low > 0.0 { low } else { high.min(0.0) };
    let (low, high) = (low.max(near - 12.0), high.min(near + 12.0));
    let n = 200_000;
    let (mut mass, mut sums) = (0.0, [0.0; 2]);
    for i in 0..n {
        let z = low + (high - low) * (f64::from(i) + 0.5) / f64::from(n);
        let weight = (0.5 * (near * near - z * z)).exp();
        mass += weight;
        sums = [sums[0] + weight * z, sums[1] + weight * z * z];
    }
    let [first, second] = sums.map(|s| s / mass);
    [mean + deviation * first, deviation * deviation * (second - first * first)]
}

fn parameters(dtype: DType, cases: &[[f64; 4]], dims: &[usize]) -> Vec<Input> {
    (0..4)
        .map(|k| {
            let column: Vec<f64> = cases.iter().map(|c| c[k]).collect();
            HostTensor::floats(dtype, dims, &column).into()
        })
        .collect()
}

#[test]
fn bounded_normal_numbers_have_the_densitys_moments() {
    let mut s = session();
    let n = 20_000;
    let count = CASES.len();
    for dtype in s.supported([F32, F16, DType::F64]) {
        let node = Node::new("ParameterizedTruncatedNormal")
            .attr("dtype", dtype)
            .attr("seed", 3_i64)
            .attr("seed2", 4_i64);
        let mut inputs = vec![shape(&[count as i64, n as i64])];
        inputs.extend(parameters(dtype, &CASES, &[count]));
        let stateful = run(&mut s, &node, &inputs).to_f64();
        let node = Node::new("StatelessParameterizedTruncatedNormal").attr("dtype", dtype);
        let mut inputs = vec![shape(&[n as i64, count as i64]), seeds()];
        inputs.extend(parameters(dtype, &CASES, &[count]));
        let stateless = run(&mut s, &node, &inputs).to_f64();
        assert_eq!(run(&mut s, &node, &inputs).to_f64(), stateless, "a seed is a seed");
        for (k, case) in CASES.iter().enumerate() {
            let rows: [Vec<f64>; 2] = [
                stateful[k * n..][..n].to_vec(),
                stateless.iter().skip(k).step_by(count).copied().collect(),
            ];
            let [mean, variance] = moments(*case);
            // float16 rounds the numbers.
            let rounding = if dtype == F16 { 4e-3 * (1.0 + case[0].abs()) } else { 1e-5 };
            for row in rows {
                for v in &row {
                    let inside = *v >= case[2] - rounding && *v <= case[3] + rounding;
                    assert!(inside, "{dtype} {case:?}: {v}");
                }
                let got = row.iter().sum::<f64>() / n as f64;
                let spread = row.iter().map(|v| (v - got).powi(2)).sum::<f64>() / n as f64;
                let error = 5.0 * (variance / n as f64).sqrt() + rounding;
                assert!((got - mean).abs() < error, "{dtype} {case:?}: {got}, want {mean}");
                assert!(
                    (spread - variance).abs() < 0.06 * variance + rounding * rounding,
                    "{dtype} {case:?}: variance {spread}, want {variance}"
                );
            }
        }
    }
}

#[test]
fn bounded_normal_numbers_of_broadcast_and_bad_parameters() {
    let mut s = session();
    let node = Node::new("StatelessParameterizedTruncatedNormal").attr("dtype", F32);
    let f32 = |dims: &[usize], v: &[f32]| Input::from(HostTensor::f32(dims, v));
    let all = |means: Input, deviations: Input, least: Input, most: Input, dims: &[i64]| {
        vec![shape(dims), seeds(), means, deviations, least, most]
    };
    let one = f32(&[], &[1.0]);
    let means = f32(&[2, 1], &[0.0, 100.0]);
    let least = f32(&[3], &[-1.0, -200.0, 99.0]);
    let most = f32(&[3], &[1.0, 200.0, 101.0]);
    let inputs = all(means.clone(), one.clone(), least, most, &[4, 2, 3]);
    let got = run(&mut s, &node, &inputs);
    for (i, v) in got.to_f64().iter().enumerate() {
        let (low, high) = [(-1.0, 1.0), (-200.0, 200.0), (99.0, 101.0)][i % 3];
        assert!(*v >= low && *v <= high, "element {i}: {v}");
        let mean = if i / 3 % 2 == 0 { 0.0 } else { 100.0 };
        assert!(i % 3 != 1 || (v - mean).abs() < 7.0, "element {i}: {v}");
    }
    assert_eq!(got.dims[..], [4, 2, 3]);
    let infinite = f32(&[], &[f32::INFINITY]);
    let open = f32(&[], &[f32::NEG_INFINITY]);
    let two = f32(&[], &[2.0]);
    for (deviation, least, most) in [
        (f32(&[], &[0.0]), one.clone(), two.clone()),
        (one.clone(), two.clone(), one.clone()),
        (one.clone(), open, infinite),
    ] {
        let inputs = all(one.clone(), deviation, least, most, &[3]);
        assert!(run(&mut s, &node, &inputs).to_f64().iter().all(|v| v.is_nan()));
    }
    let inputs = all(means, one.clone(), one.clone(), two.clone(), &[0, 2, 1]);
    assert!(run(&mut s, &node, &inputs).to_f64().is_empty());
    let refused =
        |s: &mut Session, node: &Node, inputs: &[Input], text: &str| match s.run(node, inputs) {
            Err(Error::InvalidArgument(m)) => assert!(m.contains(text), "{m}"),
            other => panic!("{text}: {other:?}"),
        };
    let three = f32(&[3], &[1.0; 3]);
    let inputs = all(three.clone(), one.clone(), one.clone(), two.clone(), &[3, 2]);
    refused(&mut s, &node, &inputs, "must end with broadcasted shape");
    let node = Node::new("ParameterizedTruncatedNormal").attr("dtype", F32).attr("seed", 1_i64);
    let node = node.attr("seed2", 2_i64);
    let inputs = [shape(&[2, 2]), three, one.clone(), one.clone(), two.clone()];
    refused(&mut s, &node, &inputs, "should have length 1 or shape[0]");
    let matrix = f32(&[1, 1], &[1.0]);
    refused(&mut s, &node, &[shape(&[2]), matrix, one.clone(), one, two], "scalar or vector");
}
