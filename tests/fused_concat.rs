//! `_WgpuFusedConcat` against the references of its expression's rows: parts of tensors and whole
//! ones, every axis and type, windows, errors.

mod numeric;

use numeric::bindings::{session, within};
use numeric::{Random, assert_close};
use tensorflow_wgpu::kernels::expression::Expression;
use tensorflow_wgpu::local::{Input, Node};
use tensorflow_wgpu::{DType, Error, HostTensor};

/// Rotary embeddings: both halves rotated.
const TURNED: &str = "x: T, T, T, T; c: 0; s0 = Mul<T>(x0, x1); s1 = Mul<T>(x2, x3); s2 = \
                      Sub<T>(s0, s1); s3 = Mul<T>(x0, x3); s4 = Mul<T>(x2, x1); s5 = \
                      AddV2<T>(s3, s4); return s2, s5";
/// One half of it, in another notation.
const SWAPPED: &str = "x: T, T; c: 0; s0 = Neg<T>(x0); return s0, x1";
const THREE: &str = "x: T; c: 1; s0 = Mul<T>(x0, c0); s1 = Exp<T>(s0); return x0, s0, s1";

fn node(dtype: DType, text: &str, parts: &[i64], axis: i64) -> Node {
    let text = text.replace('T', dtype.name());
    let expression: Expression = text.parse().expect("an expression");
    let constants = vec![0.5; expression.constants()];
    Node::new("_WgpuFusedConcat")
        .attr("T_in", expression.inputs())
        .attr("T", dtype)
        .attr("expression", &text[..])
        .attr("constants", &constants[..])
        .attr("parts", parts)
        .attr("axis", axis)
}

/// The part `part` of `count` along `axis` of `values` of `dims`.
fn cut(
    dtype: DType,
    dims: &[usize],
    values: &[f64],
    axis: usize,
    part: usize,
    count: usize,
) -> HostTensor {
    let (len, inner) = (dims[axis] / count, dims[axis + 1..].iter().product::<usize>());
    let run = len * inner;
    let kept: Vec<f64> =
        values.chunks(run.max(1)).skip(part).step_by(count).flatten().copied().collect();
    let mut dims = dims.to_vec();
    dims[axis] = len;
    HostTensor::floats(dtype, &dims, &kept)
}

/// Runs the op on tensors of these dims and compares. The axis counts from the back.
fn check(dtype: DType, text: &str, inputs: &[(&[usize], i64)], axis: usize) {
    let mut random = Random::new(inputs.len() as u64 + axis as u64);
    let given: Vec<_> = inputs.iter().map(|(dims, _)| random.tensor(dtype, dims)).collect();
    let parts: Vec<i64> = inputs.iter().map(|(_, part)| *part).collect();
    let what = format!("{dtype} {text} of {inputs:?} along -{axis}");
    let values: Vec<Input> = given.iter().map(|(t, _)| t.clone().into()).collect();
    let got = session().run(&node(dtype, text, &parts, -(axis as i64)), &values).expect(&what);
    let expression: Expression = text.replace('T', dtype.name()).parse().unwrap();
    let count = expression.outputs().len();
    let read: Vec<HostTensor> = (given.iter().zip(inputs))
        .map(|((_, values), (dims, part))| match usize::try_from(*part) {
            Ok(part) => cut(dtype, dims, values, dims.len() - axis, part, count),
            Err(_) => HostTensor::floats(dtype, dims, values),
        })
        .collect();
    let want = expression.evaluate_tensors(&read, &vec![0.5; expression.constants()]).unwrap();
    // The position to which each part broadcasts in the result.
    let part = want.iter().max_by_key(|t| t.dims.len() * 1000 + t.to_f64().len()).unwrap();
    let mut dims = part.dims.to_vec();
    let at = dims.len() - axis;
    let run: usize = dims[at..].iter().product();
    let all: Vec<Vec<f64>> = want.iter().map(HostTensor::to_f64).collect();
    assert!(all.iter().all(|values| values.len() == all[0].len()), "{what}");
    let rows = all[0].len() / run.max(1);
    let joined: Vec<f64> = (0..rows)
        .flat_map(|row| all.iter().flat_map(move |values| values[row * run..][..run].to_vec()))
        .collect();
    dims[at] *= count;
    assert_eq!((got[0].dtype, &got[0].dims[..]), (dtype, &dims[..]), "{what}");
    assert_close(&got[0], &joined, 8.0, &what);
}

const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

#[test]
fn halves_that_are_turned() {
    for dtype in session().supported(TYPES) {
        for (dims, angles, axis) in [
            (&[2, 3, 5, 8][..], &[5, 4][..], 1),
            (&[1, 8, 1, 64], &[1, 1, 1, 32], 1),
            (&[3, 6], &[1], 1),
            (&[3, 6], &[], 1),
            // Odd rows of packed types.
            (&[5, 2], &[5, 1], 1),
            (&[3, 4, 5], &[2, 5], 2),
            (&[4, 3, 1], &[2, 3, 1], 3),
            // Parts of one element, which broadcast to five.
            (&[3, 2], &[3, 5], 1),
        ] {
            check(dtype, TURNED, &[(dims, 0), (angles, -1), (dims, 1), (angles, -1)], axis);
            check(dtype, SWAPPED, &[(dims, 1), (dims, 0)], axis);
        }
    }
}

#[test]
fn whole_tensors_and_three_parts() {
    for dtype in session().supported(TYPES) {
        for axis in 1..=3 {
            check(dtype, THREE, &[(&[2, 3, 5], -1)], axis);
            check(dtype, THREE, &[(&[6, 9, 12], 2)], axis);
            check(dtype, SWAPPED, &[(&[6, 4, 2], 0), (&[6, 4, 2], 1)], axis);
        }
        check(dtype, SWAPPED, &[(&[2, 0, 4], 1), (&[2, 0, 4], 0)], 1);
        check(dtype, SWAPPED, &[(&[2, 4, 0], 1), (&[2, 4, 0], 0)], 1);
    }
}

#[test]
fn more_than_one_workgroup_and_beyond_one_binding() {
    let dims: &[usize] = &[40, 60, 64];
    let run =
        || check(DType::F32, TURNED, &[(dims, 0), (&[60, 32], -1), (dims, 1), (&[32], -1)], 1);
    run();
    within(1 << 16, run);
}

#[test]
fn misaligned_operands() {
    let mut random = Random::new(5);
    for dtype in session().supported(TYPES) {
        let (x, values) = random.tensor(dtype, &[3, 8]);
        let mut session = session();
        session.misalign = 1;
        let inputs: [Input; 2] = [x.clone().into(), x.into()];
        let got = session.run(&node(dtype, SWAPPED, &[1, 0], -1), &inputs).unwrap();
        let row = |r: usize| {
            let (low, high) = values[r * 8..][..8].split_at(4);
            high.iter().map(|v| -v).chain(low.iter().copied()).collect::<Vec<_>>()
        };
        let want: Vec<f64> = (0..3).flat_map(row).collect();
        assert_close(&got[0], &want, 1.0, "misaligned");
    }
}

#[test]
fn parts_that_do_not_go_together_are_refused() {
    let x = HostTensor::f32(&[2, 6], &[1.0; 12]);
    let odd = HostTensor::f32(&[2, 5], &[1.0; 10]);
    let run = |node: Node, inputs: [&HostTensor; 2]| {
        let inputs: Vec<Input> = inputs.iter().map(|t| (*t).clone().into()).collect();
        session().run(&node, &inputs).unwrap_err()
    };
    for (error, said) in [
        (run(node(DType::F32, SWAPPED, &[1, 0], -1), [&x, &odd]), "no 2 parts"),
        (run(node(DType::F32, SWAPPED, &[1, 0], -3), [&x, &x]), "no 2 parts"),
        (run(node(DType::F32, SWAPPED, &[2, 0], -1), [&x, &x]), "part 2 of 2"),
        (run(node(DType::F32, SWAPPED, &[1, 0], 1), [&x, &x]), "axis 1"),
        (run(node(DType::F32, SWAPPED, &[1], -1), [&x, &x]), "1 parts"),
        (run(node(DType::F32, SWAPPED, &[1, -1], -1), [&x, &odd]), "Incompatible shapes"),
    ] {
        assert!(matches!(&error, Error::InvalidArgument(m) if m.contains(said)), "{error}: {said}");
    }
}
