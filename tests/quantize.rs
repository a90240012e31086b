//! Simulated quantization and CheckNumerics against plain Rust: channels, bounds off the steps,
//! rounding, gradients, errors.

#[expect(dead_code, reason = "the comparison of sums is for contractions")]
mod numeric;

use numeric::{Random, session};
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor};

fn run(
    session: &mut Session,
    node: &Node,
    inputs: &[HostTensor],
) -> Result<Vec<HostTensor>, Error> {
    session.run(node, &inputs.iter().cloned().map(Input::from).collect::<Vec<_>>())
}

fn values(random: &mut Random, dims: &[usize], scale: f64) -> HostTensor {
    let (_, v) = random.tensor(DType::F32, dims);
    HostTensor::floats(DType::F32, dims, &v.iter().map(|v| v * scale).collect::<Vec<_>>())
}

/// Least value, largest value and step of a range widened so that zero is a step.
fn nudged(min: f64, max: f64, steps: [f64; 2]) -> [f64; 3] {
    let scale = (max - min) / (steps[1] - steps[0]);
    let zero = (steps[0] - min / scale).clamp(steps[0], steps[1]).round();
    [(steps[0] - zero) * scale, (steps[1] - zero) * scale, scale]
}

#[test]
fn fake_quantization_by_channel_and_its_gradient() {
    let (mut session, mut random) = (session(), Random::new(3));
    let (low, high) = ([-3.1_f32, 0.5, 0.0, -6.0], [5.3_f32, 4.0, 0.0, -1.0]);
    let bounds = [HostTensor::f32(&[4], &low), HostTensor::f32(&[4], &high)];
    for (dims, misalign) in [(&[4][..], 0), (&[7, 4], 1), (&[2, 3, 4], 0), (&[0, 4], 0)] {
        session.misalign = misalign;
        let (x, g) = (values(&mut random, dims, 8.0), values(&mut random, dims, 1.0));
        let attrs = |op: &str| Node::new(op).attr("num_bits", 5_i64).attr("narrow_range", true);
        let node = attrs("FakeQuantWithMinMaxVarsPerChannel");
        let y =
            run(&mut session, &node, &[x.clone(), bounds[0].clone(), bounds[1].clone()]).unwrap();
        let node = attrs("FakeQuantWithMinMaxVarsPerChannelGradient");
        let d =
            run(&mut session, &node, &[g.clone(), x.clone(), bounds[0].clone(), bounds[1].clone()])
                .unwrap();
        let mut sums = [[0.0; 4]; 2];
        for (i, (x, g)) in x.to_f64().into_iter().zip(g.to_f64()).enumerate() {
            let c = i % 4;
            let zero = low[c] == 0.0 && high[c] == 0.0;
            let [min, max, scale] = nudged(f64::from(low[c]), f64::from(high[c]), [1.0, 31.0]);
            let want =
                if zero { 0.0 } else { ((x.clamp(min, max) - min) / scale).round() * scale + min };
            let got = y[0].to_f64()[i];
            // A value halfway between two steps may go to either.
            assert!(
                (got - want).abs() < 1e-4
                    || (got - want).abs() < 1.001 * scale && (got - x).abs() < 0.501 * scale
            );
            let inside = zero || (min..=max).contains(&x);
            assert!((d[0].to_f64()[i] - if inside { g } else { 0.0 }).abs() < 1e-6);
            sums[0][c] += if inside || x > max { 0.0 } else { g };
            sums[1][c] += if inside || x < min { 0.0 } else { g };
        }
        for (got, want) in d[1..].iter().zip(sums) {
            assert!(
                got.to_f64().iter().zip(want).all(|(g, w)| (g - w).abs() < 1e-5),
                "{dims:?}: {got:?} {want:?}"
            );
        }
    }
}

#[test]
fn quantization_takes_its_range_from_the_values_or_the_inputs() {
    let (mut session, mut random) = (session(), Random::new(4));
    for dtype in [DType::F32, DType::F64] {
        if !session.runs(dtype) {
            continue;
        }
        for (given, half_up) in [(false, false), (true, false), (true, true)] {
            let (x, _) = random.tensor(dtype, &[3, 11]);
            let scalar = |v: f64| HostTensor::floats(dtype, &[], &[v]);
            let node = Node::new("QuantizeAndDequantizeV2")
                .attr("T", dtype)
                .attr("signed_input", true)
                .attr("num_bits", 4_i64)
                .attr("range_given", given)
                .attr("narrow_range", false)
                .attr("axis", -1_i64)
                .attr("round_mode", if half_up { "HALF_UP" } else { "HALF_TO_EVEN" });
            let y = run(&mut session, &node, &[x.clone(), scalar(-0.5), scalar(0.75)]).unwrap();
            let x = x.to_f64();
            let (min, max) = if given {
                (-0.5, 0.75)
            } else {
                (x.iter().copied().fold(0.0, f64::min), x.iter().copied().fold(0.0, f64::max))
            };
            let (down, up) = (-8.0 / min, 7.0 / max);
            let scale: f64 = down.min(up);
            let (min, max) = (-8.0 / scale, 7.0 / scale);
            for (x, y) in x.iter().zip(y[0].to_f64()) {
                let clamped = if given { x.clamp(min, max) } else { *x };
                assert!(
                    (y - clamped).abs() <= 0.5001 / scale,
                    "{dtype} {given} {half_up}: {x} became {y}"
                );
                assert!(
                    (y * scale - (y * scale).round()).abs() < 1e-4,
                    "{y} is no step of {}",
                    1.0 / scale
                );
            }
        }
    }
}

#[test]
fn halves_round_as_the_attribute_says() {
    let mut session = session();
    let x = HostTensor::f32(&[6], &[-2.5, -1.5, -0.5, 0.5, 1.5, 2.5]);
    for (mode, want) in [
        ("HALF_TO_EVEN", [-2.0, -2.0, 0.0, 0.0, 2.0, 2.0]),
        ("HALF_UP", [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0]),
    ] {
        let node = Node::new("QuantizeAndDequantizeV2")
            .attr("T", DType::F32)
            .attr("signed_input", true)
            .attr("num_bits", 3_i64)
            .attr("range_given", true)
            .attr("narrow_range", false)
            .attr("axis", -1_i64)
            .attr("round_mode", mode);
        let bound = |v: f32| HostTensor::f32(&[], &[v]);
        let y = run(&mut session, &node, &[x.clone(), bound(-4.0), bound(3.0)]).unwrap();
        assert_eq!(
            y[0].values::<f32>().iter().map(|v| v + 0.0).collect::<Vec<_>>(),
            want,
            "{mode}"
        );
    }
}

#[test]
fn numerics_are_checked_in_tensorflows_words() {
    let mut session = session();
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    for dtype in [DType::F32, DType::F16, DType::F64] {
        if !session.runs(dtype) {
            continue;
        }
        for (bad, v1, v2) in [
            (&[1.0, nan, 2.0][..], "NaN", "NaN"),
            (&[inf], "Inf", "+Inf"),
            (&[0.0, -inf], "Inf", "-Inf"),
            (&[inf, nan, 1.0], "Inf and NaN", "+Inf and NaN"),
            (&[inf, -inf, 1.0], "Inf", "-Inf and +Inf"),
            (&[inf, -inf, nan], "Inf and NaN", "-Inf, +Inf, and NaN"),
        ] {
            let x = HostTensor::floats(dtype, &[bad.len()], bad);
            for (op, kinds) in [("CheckNumerics", v1), ("CheckNumericsV2", v2)] {
                let node = Node::new(op).attr("T", dtype).attr("message", "step 3");
                let error = run(&mut session, &node, std::slice::from_ref(&x)).unwrap_err();
                let want = format!("step 3 : Tensor had {kinds} values");
                assert!(
                    matches!(&error, Error::InvalidArgument(m) if m.ends_with(&want)),
                    "{error}"
                );
            }
        }
        let x = HostTensor::floats(dtype, &[5], &[1.0, -2.0, 0.0, 1e4, -6e-8]);
        let node = Node::new("CheckNumerics").attr("T", dtype).attr("message", "step 3");
        assert_eq!(run(&mut session, &node, std::slice::from_ref(&x)).unwrap()[0], x);
    }
}

#[test]
fn errors_use_tensorflows_words() {
    let mut session = session();
    let x = HostTensor::f32(&[2, 3], &[0.5; 6]);
    let args = |min: f32, bits: i64| {
        Node::new("FakeQuantWithMinMaxArgs")
            .attr("min", min)
            .attr("max", 0.0_f32)
            .attr("num_bits", bits)
            .attr("narrow_range", false)
    };
    let mut message =
        |node: Node, inputs: &[HostTensor]| match run(&mut session, &node, inputs).unwrap_err() {
            Error::InvalidArgument(m) => m,
            other => panic!("{other:?}"),
        };
    assert!(
        message(args(1.0, 8), std::slice::from_ref(&x))
            .contains("min has to be smaller than max, was: 1 >= 0")
    );
    assert!(
        message(args(-1.0, 17), std::slice::from_ref(&x))
            .contains("num_bits must be between 2 and 16, inclusive")
    );
    let channels = Node::new("FakeQuantWithMinMaxVarsPerChannel")
        .attr("num_bits", 8_i64)
        .attr("narrow_range", false);
    let two = HostTensor::f32(&[2], &[-1.0, -1.0]);
    assert!(
        message(channels, &[x, two.clone(), two])
            .contains("min has incorrect size, expected 3 was 2")
    );
}
