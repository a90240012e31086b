//! Seeds, generators and their variables.

use super::distributions::box_muller;
use super::*;

/// A run of a stateful op with seeds must give the head of TensorFlow's stream. The generator on
/// the host predicts the rest of it.
#[test]
fn stateful_ops_start_as_tensorflow_does() {
    let mut s = session();
    let mut first = |op: &str, dtype: DType| {
        let node =
            Node::new(op).attr("dtype", dtype).attr("T", I32).attr("seed", 11).attr("seed2", 22);
        run(&mut s, &node, &[HostTensor::i32(&[1], &[6]).into()])
    };
    let uniform = [0x3dfad730, 0x3f7e5478, 0x3f134a94, 0x3eb35504, 0x3f52d8aa, 0x3ef0b578];
    assert_eq!(bits(&first("RandomUniform", F32)), uniform);
    let normal: [u32; 6] = [0xbdabfb4e, 0x40030b6b, 0x3f598173, 0xbf1e9100, 0x3dee02e1, 0xbf1cae76];
    let truncated: [u32; 6] =
        [0xbdabfb4e, 0x3f598173, 0xbf1e9100, 0x3dee02e1, 0xbfb8e4c7, 0x3f317b64];
    for (op, recorded) in [("RandomStandardNormal", normal), ("TruncatedNormal", truncated)] {
        for (got, expected) in first(op, F32).to_f64().into_iter().zip(recorded) {
            let expected = f64::from(f32::from_bits(expected));
            assert_ulps(got, expected, ulp(F32, expected), 4.0, op);
        }
    }
    let generator = Generator::seeded(11, 22);
    let node = Node::new("RandomUniformInt")
        .attr("Tout", I64)
        .attr("T", I64)
        .attr("seed", 11)
        .attr("seed2", 22);
    let got = run(&mut s, &node, &[shape(&[1]), scalar(I64, 10), scalar(I64, 20)]).values::<i64>();
    let draw = u64::from(word(&generator, 0)) | u64::from(word(&generator, 1)) << 32;
    assert_eq!(got, [10 + (draw % 10) as i64]);
}

#[test]
fn ops_without_seeds_differ() {
    let mut s = session();
    let node = Node::new("RandomUniform")
        .attr("dtype", F32)
        .attr("T", I64)
        .attr("seed", 0)
        .attr("seed2", 0);
    let (a, b) = (run(&mut s, &node, &[shape(&[8])]), run(&mut s, &node, &[shape(&[8])]));
    assert_ne!(a, b);
}

#[test]
fn one_kernel_continues_its_stream() {
    let s = session();
    let node = Node::new("RandomUniform")
        .attr("dtype", F32)
        .attr("T", I64)
        .attr("seed", 11)
        .attr("seed2", 22);
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

    s.run(&Node::new("RngSkip"), &[Input::Variable(state), scalar(I64, 1), scalar(I64, 3)])
        .unwrap();
    generator.skip(3 * 256);
    let delta = HostTensor::of(U64, &[], &[2u64]);
    let got = run(
        &mut s,
        &Node::new("RngReadAndSkip"),
        &[Input::Variable(state), scalar(I32, 1), delta.into()],
    );
    let at = |g: &Generator| g.counter_u64s().map(u64::cast_signed);
    assert_eq!(
        (got.values::<i64>(), &got.dims[..]),
        (vec![at(&generator)[0], at(&generator)[1], 3], &[3][..])
    );
    generator.skip(2 * 256);
    let [low, high] = at(&generator);
    assert_eq!(s.variable_value(state).unwrap().values::<i64>(), [low, high, 3, 9, 9]);

    assert!(run(&mut s, &node("StatefulUniform", BF16), &inputs(0)).bytes.is_empty());
    assert_eq!(s.variable_value(state).unwrap().values::<i64>(), [low, high, 3, 9, 9]);
}
