//! ArgMax and ArgMin of tensors, and of the values of expressions, against their definition.

#[expect(dead_code, reason = "the comparison of sums is for contractions")]
mod numeric;

use numeric::Random;
use tensorflow_wgpu::device::Profile;
use tensorflow_wgpu::dtype::DType::{self, *};
use tensorflow_wgpu::kernels::expression::Expression;
use tensorflow_wgpu::kernels::reduce::arg::ARG_REDUCTIONS;
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{Error, HostTensor};

/// Sessions on the adapter as it is, and under a GPU's profile.
fn sessions() -> [Session; 2] {
    [numeric::session(), Session::under(Profile::NVIDIA).unwrap()]
}

/// Numbers in [-1, 1), or small integers, or bools.
fn random(dtype: DType, dims: &[usize], seed: u64) -> HostTensor {
    let n: usize = dims.iter().product();
    let mut random = Random::new(seed);
    match dtype {
        _ if dtype.is_float() => random.tensor(dtype, dims).0,
        Bool => HostTensor::bool(dims, &(0..n).map(|_| random.below(2) == 1).collect::<Vec<_>>()),
        _ => {
            let size = dtype.size();
            let bytes = (0..n).flat_map(|_| random.below(19).to_le_bytes()[..size].to_vec());
            HostTensor { dtype, dims: dims.into(), bytes: bytes.collect() }
        }
    }
}

fn arg_node(op: &str, dtype: DType, output: DType) -> Node {
    Node::new(op).attr("T", dtype).attr("Tidx", I32).attr("output_type", output)
}

fn fused_node(op: &str, text: &str, constants: &[f32], output: DType) -> Node {
    let expression: Expression = text.parse().unwrap();
    Node::new("_WgpuFusedArg")
        .attr("T_in", expression.inputs())
        .attr("output_type", output)
        .attr("reduction", op)
        .attr("expression", text)
        .attr("constants", constants)
}

/// The places of the first best numbers along an axis.
fn places(v: &HostTensor, axis: usize, beats: fn(f64, f64) -> bool) -> Vec<f64> {
    let [extent, inner] = [v.dims[axis], v.dims[axis + 1..].iter().product()];
    let outer: usize = v.dims[..axis].iter().product();
    let v = v.to_f64();
    let place = |at: usize| {
        let value = |r: usize| v[(at / inner * extent + r) * inner + at % inner];
        let better = |best: Option<usize>, r: usize| match best {
            Some(b) if !beats(value(r), value(b)) => Some(b),
            _ if value(r).is_nan() => best,
            _ => Some(r),
        };
        (0..extent).fold(None, better).unwrap_or(0) as f64
    };
    (0..outer * inner).map(place).collect()
}

fn axis_of(dims: &[usize], axis: usize) -> Input {
    HostTensor::i32(&[], &[axis as i32 - dims.len() as i32]).into()
}

fn check_arg(session: &mut Session, x: &HostTensor, axis: usize) {
    for row in ARG_REDUCTIONS {
        let wanted = places(x, axis, row.reference);
        for output in [I32, I64] {
            let inputs = [x.clone().into(), axis_of(&x.dims, axis)];
            let node = arg_node(row.op, x.dtype, output);
            let out = session.run(&node, &inputs).unwrap().remove(0);
            assert_eq!(out.dtype, output);
            let what = format!("{} {} {:?} along {axis}", row.op, x.dtype, x.dims);
            assert_eq!(out.to_f64(), wanted, "{what}");
        }
    }
}

/// The shapes of tests: short and long rows and columns, empty ones, and several segments.
const SHAPES: [(&[usize], usize); 9] = [
    (&[7], 0),
    (&[1, 1], 1),
    (&[4, 5, 6], 0),
    (&[4, 5, 6], 1),
    (&[4, 5, 6], 2),
    (&[3, 5000], 1),
    (&[5000, 3], 0),
    (&[0, 4], 1),
    (&[20_000, 10], 1),
];

/// Rows with and without segments; columns of a part, of one and of many vec4s an invocation, with
/// a rest, and with segments.
const VEC4S: [(&[usize], usize); 8] = [
    (&[3, 64], 1),
    (&[2, 5000], 1),
    (&[66, 256], 0),
    (&[70, 40], 0),
    (&[2, 100, 24], 1),
    (&[5000, 4], 0),
    (&[2, 70, 516], 1),
    (&[30, 16], 0),
];

#[test]
fn every_type_and_axis() {
    for mut session in sessions() {
        let types = [F32, F16, BF16, F64, Bool, I8, U16, U32, I64, U64];
        for dtype in types {
            if !session.runs(dtype) {
                continue;
            }
            for (dims, axis) in SHAPES {
                session.misalign = dims.len() % 2;
                check_arg(&mut session, &random(dtype, dims, 11), axis);
            }
        }
        for n in [3, 4000] {
            let mut v = vec![f64::NAN; 2 * n];
            v[n + 1] = f64::NEG_INFINITY;
            v[n + 2] = -1.0;
            check_arg(&mut session, &HostTensor::floats(F32, &[2, n], &v), 1);
        }
    }
}

#[test]
fn vec4s() {
    for mut session in sessions() {
        for dtype in [F32, F16, BF16] {
            for (dims, axis) in VEC4S {
                check_arg(&mut session, &random(dtype, dims, 12), axis);
            }
            // Infinities and ordinary numbers after nothing but NaN.
            for value in [f64::NEG_INFINITY, f64::INFINITY, 1.0] {
                let v: Vec<f64> =
                    (0..800).map(|i| if i % 7 == 3 { value } else { f64::NAN }).collect();
                check_arg(&mut session, &HostTensor::floats(dtype, &[2, 400], &v), 1);
                check_arg(&mut session, &HostTensor::floats(dtype, &[200, 4], &v), 0);
            }
            check_arg(&mut session, &HostTensor::floats(dtype, &[100, 8], &[f64::NAN; 800]), 0);
        }
    }
}

#[test]
fn values_of_expressions() {
    let texts: [(&str, &[f32]); 4] = [
        // Keras's: a negative zero is less than a positive one.
        (
            "x: bfloat16; c: 3; s0 = Cast<float32, int32>(c1); s1 = Cast<bfloat16, float32>(x0); \
             s2 = Bitcast<float32, int32>(s1); s3 = Equal<float32>(s1, c0); s4 = Less<int32>(s2, \
             s0); s5 = LogicalAnd<bool>(s3, s4); s6 = SelectV2<float32>(s5, c2, s1); return s6",
            &[0.0, 0.0, -f32::MIN_POSITIVE],
        ),
        (
            "x: float32, float16; c: 1; s0 = Cast<float16, float32>(x1); s1 = Mul<float32>(x0, \
             c0); s2 = AddV2<float32>(s1, s0); return s2",
            &[0.75],
        ),
        // Rounded values are compared. Many of them are equal.
        ("x: bfloat16, bfloat16; c: 0; s0 = Mul<bfloat16>(x0, x1); return s0", &[]),
        (
            "x: bool, uint8; c: 0; s0 = Cast<uint8, bool>(x1); s1 = LogicalAnd<bool>(x0, s0); \
             return s1",
            &[],
        ),
    ];
    for mut session in sessions() {
        for (text, constants) in texts {
            let expression: Expression = text.parse().unwrap();
            let some = SHAPES[2..5].iter().chain(&SHAPES[7..]).chain(&VEC4S[..5]);
            for (dims, axis) in some.copied() {
                let inputs: Vec<HostTensor> = (13..)
                    .zip(expression.inputs())
                    .map(|(seed, t)| random(*t, dims, seed))
                    .collect();
                let values = expression.evaluate_tensors(&inputs, constants).unwrap().remove(0);
                session.misalign = dims.len() % 2;
                for row in ARG_REDUCTIONS {
                    let mut given: Vec<Input> = inputs.iter().cloned().map(Into::into).collect();
                    given.push(axis_of(dims, axis));
                    let node = fused_node(row.op, text, constants, I64);
                    let out = session.run(&node, &given).unwrap().remove(0);
                    let wanted = places(&values, axis, row.reference);
                    assert_eq!(out.to_f64(), wanted, "{} {text} {dims:?} along {axis}", row.op);
                }
            }
        }
    }
}

#[test]
fn negative_zeros_lose_to_positive_ones() {
    let text = "x: float32; c: 3; s0 = Cast<float32, int32>(c1); s1 = Bitcast<float32, int32>(x0); \
                s2 = Equal<float32>(x0, c0); s3 = Less<int32>(s1, s0); s4 = LogicalAnd<bool>(s2, \
                s3); s5 = SelectV2<float32>(s4, c2, x0); return s5";
    let node = fused_node("ArgMax", text, &[0.0, 0.0, -f32::MIN_POSITIVE], I32);
    let mut x = vec![-0.0; 64];
    x[40] = 0.0;
    for mut session in sessions() {
        let inputs = [HostTensor::f32(&[1, 64], &x).into(), axis_of(&[1, 64], 1)];
        assert_eq!(session.run(&node, &inputs).unwrap()[0].to_f64(), [40.0]);
    }
}

#[test]
fn what_a_fused_reduction_does_not_take_is_refused() {
    let session = &mut sessions()[0];
    let x = HostTensor::f32(&[2, 2], &[1.0; 4]);
    let mut message = |node: Node, second: HostTensor| {
        let inputs = [x.clone().into(), second.into(), axis_of(&[2, 2], 1)];
        session.run(&node, &inputs).expect_err("it must be refused").to_string()
    };
    let sum = "x: float32, float32; c: 0; s0 = AddV2<float32>(x0, x1); return s0";
    let row = HostTensor::f32(&[2], &[1.0; 2]);
    let shapes = message(fused_node("ArgMax", sum, &[], I64), row.clone());
    assert!(shapes.contains("the shapes [2,2] and [2] of the inputs differ"), "{shapes}");
    let name = message(fused_node("Sum", sum, &[], I64), row.clone());
    assert!(name.contains("\"Sum\" is no reduction to an index"), "{name}");
    let constants = message(fused_node("ArgMax", sum, &[1.0], I64), row.clone());
    assert!(constants.contains("1 constants for the 0 parameters"), "{constants}");
    let two = sum.replace("return s0", "return s0, x0");
    let values = message(fused_node("ArgMin", &two, &[], I64), row);
    assert!(values.contains("2 values"), "{values}");
}

#[test]
fn long_columns() {
    // Too many columns for segments on a software adapter, too long for one invocation's loops.
    let (rows, columns) = (66_000, 513);
    let at = |column: usize| rows - 1 - column;
    let mut x = vec![false; rows * columns];
    (0..columns).for_each(|c| x[at(c) * columns + c] = true);
    for mut session in sessions() {
        let inputs =
            [HostTensor::bool(&[rows, columns], &x).into(), HostTensor::i32(&[], &[0]).into()];
        let out = session.run(&arg_node("ArgMax", Bool, I64), &inputs).unwrap();
        assert_eq!(out[0].to_f64(), (0..columns).map(|c| at(c) as f64).collect::<Vec<_>>());
    }
}

#[test]
fn an_axis_must_be_there() {
    let session = &mut sessions()[0];
    let mut message = |dims: &[usize], axis: HostTensor| {
        let x = HostTensor::f32(dims, &vec![1.0; dims.iter().product()]);
        match session.run(&arg_node("ArgMax", F32, I64), &[x.into(), axis.into()]) {
            Err(Error::InvalidArgument(m)) => m,
            other => panic!("{other:?}"),
        }
    };
    let scalar = |a| HostTensor::i32(&[], &[a]);
    assert!(
        message(&[2, 2], scalar(2)).contains("Expected dimension in the range [-2, 2), but got 2")
    );
    assert!(message(&[], scalar(0)).contains("Expected dimension in the range [0, 0), but got 0"));
    assert!(message(&[2, 0], scalar(1)).contains("Reduction axis 1 is empty in shape [2,0]"));
    let vector = HostTensor::i32(&[1], &[0]);
    assert!(
        message(&[2, 2], vector)
            .contains("dim must be a scalar, but received tensor of shape: [1]")
    );
}
