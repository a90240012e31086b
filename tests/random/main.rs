//! Random ops: TensorFlow's numbers (recorded from TensorFlow 2.21 on the CPU), streams of any
//! length against the generator on the host, the precision of normal numbers, statistics, and
//! errors.

mod bounded;
mod distributions;
mod states;
mod streams;

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
fn keyed(
    session: &mut Session,
    op: &str,
    dtype: DType,
    n: usize,
    generator: &Generator,
) -> HostTensor {
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
    assert!(
        error <= limit,
        "{what}: got {got}, expected {expected}, {error} units in the last place"
    );
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
    fails(
        &node,
        &[scalar(I32, 3), seeds()],
        "shape must be a vector of {int32,int64}, got shape []",
    );
    let matrix = || HostTensor::i32(&[1, 2], &[1, 2]);
    fails(
        &node,
        &[matrix().into(), seeds()],
        "shape must be a vector of {int32,int64}, got shape [1,2]",
    );
    fails(
        &node,
        &[shape(&[1 << 40, 1 << 40]), seeds()],
        "Shape [1099511627776,1099511627776] would have more than 2**63",
    );
    fails(
        &node,
        &[shape(&[2]), HostTensor::i64(&[3], &[1, 2, 3]).into()],
        "seed must have shape [2], not [3]",
    );
    fails(
        &Node::new("StatelessRandomGetKeyCounter"),
        &[scalar(I64, 3)],
        "seed must have shape [2], not []",
    );

    let int = Node::new("StatelessRandomUniformInt").attr("dtype", I32);
    let inputs = |n: i64, low: i64| [shape(&[n]), seeds(), scalar(I32, low), scalar(I32, 5)];
    fails(&int, &inputs(3, 5), "Need minval < maxval, got 5 >= 5");
    assert!(
        run(&mut session(), &int, &inputs(0, 5)).bytes.is_empty(),
        "no bounds are needed for nothing"
    );
    let vector = HostTensor::i32(&[1], &[1]);
    fails(
        &int,
        &[shape(&[3]), seeds(), vector.into(), scalar(I32, 5)],
        "minval must be 0-D, got shape [1]",
    );

    let keyed = Node::new("StatelessRandomUniformV2").attr("dtype", F32);
    let u64s = |v: &[u64]| Input::from(HostTensor::of(U64, &[v.len()], v));
    fails(
        &keyed,
        &[shape(&[2]), u64s(&[1, 2]), u64s(&[1, 2]), scalar(I32, 1)],
        "key must have shape [1], not [2]",
    );
    fails(
        &keyed,
        &[shape(&[2]), u64s(&[1]), u64s(&[1]), scalar(I32, 1)],
        "counter must be a vector with length at least 2",
    );
    fails(
        &keyed,
        &[shape(&[2]), u64s(&[1]), u64s(&[1, 2]), scalar(I32, 2)],
        "Unsupported algorithm id: 2",
    );
    fails(
        &keyed,
        &[shape(&[2]), u64s(&[1]), u64s(&[1, 2]), matrix().into()],
        "input 3 (0-based) must have shape []",
    );

    let multinomial = Node::new("StatelessMultinomial").attr("T", F32).attr("output_dtype", I64);
    let logits =
        |dims: &[usize]| Input::from(HostTensor::f32(dims, &vec![0.0; dims.iter().product()]));
    fails(
        &multinomial,
        &[logits(&[3]), scalar(I32, 1), seeds()],
        "logits should be a matrix, got shape [3]",
    );
    fails(
        &multinomial,
        &[logits(&[1, 0]), scalar(I32, 1), seeds()],
        "num_classes should be positive, got 0",
    );
    fails(
        &multinomial,
        &[logits(&[1, 3]), scalar(I32, -1), seeds()],
        "num_samples should be non-negative, got -1",
    );
    fails(
        &multinomial,
        &[logits(&[1, 3]), shape(&[1]), seeds()],
        "num_samples should be a scalar, got shape [1]",
    );
    fails(
        &multinomial,
        &[logits(&[1, 3]), scalar(I32, 1), scalar(I32, 1)],
        "seed must have shape [2], not []",
    );

    let draw = Node::new("StatefulUniform").attr("dtype", F32);
    for (state, message) in [
        (
            HostTensor::i64(&[2], &[1, 2]),
            "For the Philox algorithm, the size of state must be at least 3; got 2",
        ),
        (
            HostTensor::i64(&[1, 3], &[1, 2, 3]),
            "RNG state must have one and only one dimension, not 2",
        ),
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
    assert!(
        matches!(&threefry, Err(Error::Unimplemented(m)) if m.contains("ThreeFry")),
        "{threefry:?}"
    );
}
