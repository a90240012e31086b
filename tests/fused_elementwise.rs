//! `_WgpuFusedElementwise` against the references of its expression's rows: every type and access
//! class, several outputs, in place, windows, errors.

mod numeric;

use numeric::{Random, assert_close, session};
use tensorflow_wgpu::kernels::expression::Expression;
use tensorflow_wgpu::kernels::fused::elementwise::OP;
use tensorflow_wgpu::kernels::fused::eval::{elements, tensor};
use tensorflow_wgpu::kernels::scalar::row::Value as Scalar;
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor};

/// The node of an expression.
fn node(text: &str, constants: &[f32]) -> Node {
    let e: Expression = text.parse().expect("an expression");
    Node::new(OP)
        .attr("T_in", e.inputs())
        .attr("T_out", &e.output_types()[..])
        .attr("expression", text)
        .attr("constants", constants)
}

fn run(
    session: &mut Session,
    text: &str,
    constants: &[f32],
    inputs: &[HostTensor],
) -> Result<Vec<HostTensor>, Error> {
    session.run(
        &node(text, constants),
        &inputs.iter().map(|t| Input::from(t.clone())).collect::<Vec<_>>(),
    )
}

/// Values of any type: small numbers of both signs, floats with fractions.
fn random(random: &mut Random, dtype: DType, dims: &[usize]) -> HostTensor {
    let n = dims.iter().product::<usize>();
    match dtype {
        DType::Bool => {
            HostTensor::bool(dims, &(0..n).map(|_| random.below(2) == 1).collect::<Vec<_>>())
        }
        t if t.is_float() => random.tensor(t, dims).0,
        t => {
            let values: Vec<Scalar> =
                (0..n).map(|_| Scalar::Int(random.below(200) as i128 - 100)).collect();
            tensor(t, dims, &values)
        }
    }
}

/// Compares with the evaluator: floats within rounding, all else exactly.
fn check(session: &mut Session, text: &str, constants: &[f32], inputs: &[HostTensor]) {
    let expression: Expression = text.parse().unwrap();
    let what = format!("{text} of {:?}", inputs.iter().map(|t| &t.dims[..]).collect::<Vec<_>>());
    let want = expression.evaluate_tensors(inputs, constants).unwrap();
    let got = run(session, text, constants, inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(got.len(), want.len(), "{what}");
    for (k, (g, w)) in got.iter().zip(&want).enumerate() {
        let what = format!("output {k} of {what}, misaligned by {}", session.misalign);
        assert_eq!((g.dtype, &g.dims), (w.dtype, &w.dims), "{what}");
        if g.dtype.is_float() {
            assert_close(g, &w.to_f64(), 4.0, &what);
        } else {
            assert_eq!(elements(g), elements(w), "{what}");
        }
    }
}

/// Shapes of up to three inputs; the third broadcasts with the others too.
const SHAPES: &[[&[usize]; 3]] = &[
    [&[], &[], &[]],
    [&[37], &[37], &[37]],
    [&[5, 8], &[5, 8], &[]],
    [&[3, 5, 7], &[7], &[5, 1]],
    [&[2, 1, 6], &[3, 1], &[2, 1, 1]],
    [&[4, 1], &[1, 9], &[9]],
    [&[0, 3], &[3], &[]],
    [&[1], &[1, 1], &[]],
    [&[2, 3, 1, 2, 3], &[2, 1, 4, 1, 3], &[3, 1, 1, 1]],
];

fn everywhere(text: &str, constants: &[f32]) {
    let mut session = session();
    let expression: Expression = text.parse().unwrap();
    let capabilities = *session.device.capabilities();
    if !expression
        .inputs()
        .iter()
        .chain(&expression.output_types())
        .all(|t| capabilities.supports(*t))
    {
        return;
    }
    let mut numbers = Random::new(7);
    for misalign in [0, 1] {
        session.misalign = misalign;
        for shapes in SHAPES {
            let types = expression.inputs().iter();
            let inputs: Vec<_> =
                types.zip(shapes).map(|(t, dims)| random(&mut numbers, *t, dims)).collect();
            check(&mut session, text, constants, &inputs);
        }
    }
}

#[test]
fn a_chain_with_parameters() {
    everywhere(
        "x: float32, float32; c: 2; s0 = Mul<float32>(x0, c0); s1 = Tanh<float32>(s0); s2 = \
         AddV2<float32>(s1, c1); s3 = Mul<float32>(s2, x1); return s3",
        &[0.7, 1.5],
    );
}

#[test]
fn attributes_are_parameters() {
    everywhere(
        "x: float32; c: 1; s0 = LeakyRelu<float32>(x0, c0); s1 = Neg<float32>(s0); return s1",
        &[0.25],
    );
}

#[test]
fn several_outputs_of_one_type() {
    everywhere(
        "x: float32, float32, float32; c: 0; s0 = Mul<float32>(x0, x1); s1 = AddV2<float32>(s0, \
         x2); s2 = Maximum<float32>(s0, x2); return s0, s1, s2",
        &[],
    );
}

#[test]
fn outputs_of_every_width() {
    everywhere(
        "x: float32, float16, bool; c: 0; s0 = Cast<float16, float32>(x1); s1 = \
         AddV2<float32>(x0, s0); s2 = Greater<float32>(s1, x0); s3 = LogicalAnd<bool>(s2, x2); s4 \
         = Cast<float32, bfloat16>(s1); return s3, s4, s1, x1",
        &[],
    );
    everywhere(
        "x: int64, int64; c: 0; s0 = AddV2<int64>(x0, x1); s1 = Less<int64>(s0, x1); s2 = \
         Cast<int64, float32>(s0); return s2, s1, s0",
        &[],
    );
    everywhere(
        "x: float64, float32; c: 0; s0 = Exp<float64>(x0); s1 = Cast<float64, float32>(s0); s2 = \
         Mul<float32>(s1, x1); return s0, s2",
        &[],
    );
    everywhere(
        "x: uint8, int8; c: 1; s0 = AddV2<uint8>(x0, x0); s1 = Cast<uint8, float32>(s0); s2 = \
         Cast<int8, float32>(x1); s3 = Mul<float32>(s2, c0); s4 = AddV2<float32>(s1, s3); return \
         s0, s4",
        &[0.5],
    );
}

/// Four elements at once in every width and access; then one at a time, because of alignment or odd
/// extents.
#[test]
fn large_tensors() {
    let mut session = session();
    let mut numbers = Random::new(11);
    let n = 1 << 15;
    let texts = [
        "x: float32, bfloat16, bool; c: 1; s0 = Cast<bfloat16, float32>(x1); s1 = \
         AddV2<float32>(x0, s0); s2 = Mul<float32>(s1, c0); s3 = Cast<float32, float16>(s2); s4 = \
         Greater<float32>(s2, x0); s5 = LogicalOr<bool>(s4, x2); return s2, s3, s5, x1",
        "x: int16, uint16, int8; c: 0; s0 = AddV2<int16>(x0, x0); s1 = AddV2<uint16>(x1, x1); s2 \
         = AddV2<int8>(x2, x2); s3 = Cast<int16, int32>(s0); return s0, s1, s2, s3",
        "x: uint8, float16, uint32; c: 0; s0 = AddV2<uint8>(x0, x0); s1 = Mul<float16>(x1, x1); \
         s2 = AddV2<uint32>(x2, x2); return s0, s1, s2",
    ];
    let shapes: [(usize, [&[usize]; 3]); 5] = [
        (0, [&[n / 512, 512], &[512], &[n / 512, 1]]),
        (0, [&[n], &[n], &[n]]),
        (4, [&[n], &[], &[n]]),
        (0, [&[n + 5], &[n + 5], &[]]),
        (0, [&[n / 512, 516], &[n / 512, 1], &[516]]),
    ];
    for (text, shapes) in texts.into_iter().zip([&shapes[..], &shapes[..1], &shapes[..1]]) {
        let expression: Expression = text.parse().unwrap();
        let constants = vec![0.75; expression.constants()];
        for (misalign, shapes) in shapes {
            session.misalign = *misalign;
            let types = expression.inputs().iter();
            let inputs: Vec<_> =
                types.zip(shapes).map(|(t, dims)| random(&mut numbers, *t, dims)).collect();
            check(&mut session, text, &constants, &inputs);
        }
    }
}

#[test]
fn inputs_and_parameters_may_be_outputs() {
    everywhere("x: float32, float32; c: 1; s0 = Sub<float32>(x0, x1); return s0, c0, x1", &[3.0]);
}

#[test]
fn selections_by_fused_conditions() {
    everywhere(
        "x: float32, float32, float32; c: 1; s0 = Less<float32>(x0, c0); s1 = \
         SelectV2<float32>(s0, x1, x2); return s1",
        &[0.1],
    );
}

/// A step of an LSTM whose masked sequences keep their state.
#[test]
fn a_masked_step_of_an_lstm() {
    everywhere(
        "x: float32, float32, bool; c: 0; s0 = Sigmoid<float32>(x0); s1 = Mul<float32>(x1, s0); \
         s2 = AddV2<float32>(s1, x1); s3 = Tanh<float32>(s2); s4 = SelectV2<float32>(x2, s2, x1); \
         return s0, s3, s4",
        &[],
    );
}

/// Bits of three operands, selected against one of them: a software adapter's compiler used a wrong
/// truth table for this.
#[test]
fn bits_selected_against_an_operand() {
    for dtype in ["uint32", "int64", "uint8"] {
        for kept in ["x0", "x1", "s0"] {
            everywhere(
                &format!(
                    "x: {dtype}, {dtype}, bool; c: 0; s0 = AddV2<{dtype}>(x0, x1); s1 = \
                     BitwiseAnd<{dtype}>(s0, x1); s2 = BitwiseOr<{dtype}>(s1, x0); s3 = \
                     SelectV2<{dtype}>(x2, s2, {kept}); return s3, s2"
                ),
                &[],
            );
        }
    }
    everywhere(
        "x: float32, bool; c: 0; s0 = Tanh<float32>(x0); s1 = SelectV2<float32>(x1, s0, x0); s2 = \
         Erf<float32>(x0); s3 = SelectV2<float32>(x1, x0, s2); return s1, s3",
        &[],
    );
}

#[test]
fn a_cast_to_a_narrow_type_and_back_rounds() {
    let mut session = session();
    let values = [1.0001, -3.25123, 1e-9, 70000.0, 65519.0, 5.97e-8, f32::INFINITY, f32::NAN, -0.0];
    for (narrow, round) in [
        ("float16", (|v: f32| half::f16::from_f32(v).to_f32()) as fn(f32) -> f32),
        ("bfloat16", |v| half::bf16::from_f32(v).to_f32()),
    ] {
        let text = format!(
            "x: float32; c: 0; s0 = Cast<float32, {narrow}>(x0); s1 = Cast<{narrow}, \
             float32>(s0); return s1"
        );
        let got =
            run(&mut session, &text, &[], &[HostTensor::f32(&[values.len()], &values)]).unwrap();
        for (v, got) in values.iter().zip(got[0].values::<f32>()) {
            let want = round(*v);
            assert!(
                got == want || (got.is_nan() && want.is_nan()),
                "{narrow}({v}) is {got}, want {want}"
            );
        }
    }
}

/// Both inputs' buffers become outputs, and neither is read after it was written.
#[test]
fn outputs_in_place_of_inputs() {
    let mut session = session();
    let n = 70_001;
    let (x, y): (Vec<f32>, Vec<f32>) = (0..n).map(|i| (i as f32, 0.25 * i as f32)).unzip();
    let text = "x: float32, float32; c: 0; s0 = AddV2<float32>(x0, x1); s1 = Sub<float32>(x0, \
                x1); s2 = Less<float32>(x0, x1); return s0, s1, s2";
    for misalign in [0, 1, 4] {
        session.misalign = misalign;
        let got =
            run(&mut session, text, &[], &[HostTensor::f32(&[n], &x), HostTensor::f32(&[n], &y)])
                .unwrap();
        let (sums, differences) = (got[0].values::<f32>(), got[1].values::<f32>());
        for i in 0..n {
            assert_eq!((sums[i], differences[i]), (x[i] + y[i], x[i] - y[i]), "element {i}");
        }
        assert!(got[2].bytes.iter().all(|b| *b == 0));
    }
}

/// Tensors larger than one binding, with outputs of different widths.
#[test]
fn windows() {
    let limit = 1 << 20;
    let mut session = Session::binding(limit as u64).unwrap();
    let text = "x: float32, float32; c: 1; s0 = AddV2<float32>(x0, x1); s1 = Greater<float32>(s0, \
                c0); return s0, s1";
    let (rows, columns) = (1003, limit / 4 / 1000);
    let x: Vec<f32> = (0..rows).map(|i| i as f32).collect();
    let y: Vec<f32> = (0..columns).map(|i| (i % 1021) as f32).collect();
    let inputs = [HostTensor::f32(&[rows, 1], &x), HostTensor::f32(&[columns], &y)];
    let got = run(&mut session, text, &[900.0], &inputs).unwrap();
    let sums = got[0].values::<f32>();
    for i in 0..rows * columns {
        let want = x[i / columns] + y[i % columns];
        assert!(
            sums[i] == want && (got[1].bytes[i] == 1) == (want > 900.0),
            "element {i} is {}",
            sums[i]
        );
    }
}

#[test]
fn shapes_that_do_not_broadcast_are_refused() {
    let mut session = session();
    let text = "x: float32, float32; c: 0; s0 = AddV2<float32>(x0, x1); return s0";
    let inputs = [HostTensor::f32(&[1, 3], &[0.0; 3]), HostTensor::f32(&[2], &[0.0; 2])];
    let error = run(&mut session, text, &[], &inputs).unwrap_err();
    let expected = format!("{OP}: Incompatible shapes: [1,3] vs. [2]");
    assert!(matches!(&error, Error::InvalidArgument(m) if *m == expected), "{error}");
}

#[test]
fn attributes_that_contradict_each_other_are_refused() {
    let mut session = session();
    let text = "x: float32; c: 1; s0 = Mul<float32>(x0, c0); return s0";
    let x = || vec![Input::from(HostTensor::f32(&[1], &[2.0]))];
    let good = node(text, &[3.0]);
    assert_eq!(session.run(&good, &x()).unwrap()[0].values::<f32>(), [6.0]);
    for (bad, expected) in [
        (node(text, &[]), "0 constants for the 1 parameters"),
        (good.clone().attr("T_in", &[DType::F16][..]), "T_in is"),
        (good.clone().attr("T_out", &[DType::F16][..]), "T_out is"),
        (good.clone().attr("expression", "x: float32; return"), "not an expression"),
    ] {
        let error = session.run(&bad, &x()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
