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

/// A rotary embedding of whole tensors, of which one is read in exchanged halves.
const EXCHANGED: &str = "x: T, T, T, T; c: 0; s0 = Mul<T>(x0, x1); s1 = Neg<T>(x2); s2 = \
                         Mul<T>(s1, x3); s3 = AddV2<T>(s0, s2); s4 = Mul<T>(x2, x3); s5 = \
                         AddV2<T>(s0, s4); return s3, s5";
/// The number of an input's part that is the result's own one, and of the other one.
const OWN: i64 = -2;
const OTHER: i64 = -3;

fn node(dtype: DType, text: &str, parts: &[i64], axis: i64) -> Node {
    node_of_layout(dtype, text, parts, axis, false)
}

fn node_of_layout(
    dtype: DType,
    text: &str,
    parts: &[i64],
    axis: i64,
    is_interleaved: bool,
) -> Node {
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
        .attr("interleaved", is_interleaved)
}

/// How the parts of a tensor lie along its axis, which counts from the front.
#[derive(Debug, Clone, Copy)]
struct Layout {
    axis: usize,
    count: usize,
    is_interleaved: bool,
}

impl Layout {
    /// For each element of a tensor of `dims`, the part that it belongs to.
    fn parts(self, dims: &[usize]) -> impl Iterator<Item = usize> {
        let inner: usize = dims[self.axis + 1..].iter().product();
        let run = if self.is_interleaved { inner } else { dims[self.axis] / self.count * inner };
        (0..dims.iter().product::<usize>()).map(move |i| i / run % self.count)
    }

    /// The part `part` of `values` of `dims`.
    fn cut(self, dtype: DType, dims: &[usize], values: &[f64], part: usize) -> HostTensor {
        let elements = self.parts(dims).zip(values);
        let kept: Vec<f64> = elements.filter(|(p, _)| *p == part).map(|(_, v)| *v).collect();
        let mut dims = dims.to_vec();
        dims[self.axis] /= self.count;
        HostTensor::floats(dtype, &dims, &kept)
    }
}

/// Runs the op on tensors of these dims and compares. The axis counts from the back.
fn check(dtype: DType, text: &str, inputs: &[(&[usize], i64)], axis: usize) {
    check_layout(dtype, text, inputs, axis, false);
}

fn check_layout(
    dtype: DType,
    text: &str,
    inputs: &[(&[usize], i64)],
    axis: usize,
    is_interleaved: bool,
) {
    let mut random = Random::new(inputs.len() as u64 + axis as u64);
    let given: Vec<_> = inputs.iter().map(|(dims, _)| random.tensor(dtype, dims)).collect();
    let parts: Vec<i64> = inputs.iter().map(|(_, part)| *part).collect();
    let what = format!("{dtype} {text} of {inputs:?} along -{axis}, {is_interleaved}");
    let values: Vec<Input> = given.iter().map(|(t, _)| t.clone().into()).collect();
    let node = node_of_layout(dtype, text, &parts, -(axis as i64), is_interleaved);
    let got = session().run(&node, &values).expect(&what);
    let expression: Expression = text.replace('T', dtype.name()).parse().unwrap();
    let count = expression.outputs().len();
    let layout = |axis| Layout { axis, count, is_interleaved };
    // Part `k` of the result.
    let result = |k: usize| {
        let read: Vec<HostTensor> = (given.iter().zip(inputs))
            .map(|((_, values), (dims, part))| {
                let cut = |part| layout(dims.len() - axis).cut(dtype, dims, values, part);
                match *part {
                    OWN => cut(k),
                    OTHER => cut(1 - k),
                    part => match usize::try_from(part) {
                        Ok(part) => cut(part),
                        Err(_) => HostTensor::floats(dtype, dims, values),
                    },
                }
            })
            .collect();
        expression.evaluate_tensors(&read, &vec![0.5; expression.constants()]).unwrap()[k].clone()
    };
    let want: Vec<HostTensor> = (0..count).map(result).collect();
    assert!(want.iter().all(|part| part.dims == want[0].dims), "{what}");
    let mut dims = want[0].dims.to_vec();
    let at = dims.len() - axis;
    dims[at] *= count;
    let mut all: Vec<_> = want.iter().map(|part| part.to_f64().into_iter()).collect();
    let joined: Vec<f64> =
        layout(at).parts(&dims).map(|part| all[part].next().expect("an element")).collect();
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
fn halves_that_are_exchanged() {
    for dtype in session().supported(TYPES) {
        for (dims, angles, axis) in [
            (&[2, 3, 5, 8][..], &[5, 8][..], 1),
            (&[1, 1, 4, 256], &[1, 1, 1, 256], 1),
            // Halves of odd extents, and of one element.
            (&[3, 6], &[6], 1),
            (&[5, 2], &[5, 2], 1),
            (&[3, 4, 5], &[4, 1], 2),
            (&[4, 3, 1], &[4, 3, 1], 3),
        ] {
            let inputs = [(dims, OWN), (angles, OWN), (dims, OTHER), (angles, OWN)];
            // A sine for all elements of a part.
            let whole = [(dims, OWN), (&[1][..], -1), (dims, OTHER), (angles, OTHER)];
            for is_interleaved in [false, true] {
                check_layout(dtype, EXCHANGED, &inputs, axis, is_interleaved);
                check_layout(dtype, EXCHANGED, &whole, axis, is_interleaved);
                check_layout(dtype, SWAPPED, &[(dims, 1), (dims, 0)], axis, is_interleaved);
            }
        }
        check_layout(dtype, THREE, &[(&[2, 9, 4], OWN)], 2, true);
        check_layout(dtype, THREE, &[(&[2, 9, 4], 2)], 2, true);
        check(dtype, EXCHANGED, &[(&[2, 0, 4][..], OTHER); 4], 1);
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
    let exchanged = [(dims, OWN), (&[60, 64][..], OWN), (dims, OTHER), (&[64], OWN)];
    for is_interleaved in [false, true] {
        let run = || check_layout(DType::F32, EXCHANGED, &exchanged, 1, is_interleaved);
        run();
        within(1 << 16, run);
    }
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
    let two = HostTensor::f32(&[2, 2], &[1.0; 4]);
    const UNLIKE: &str = "x: T, T; c: 0; return x0, x1, x1";
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
        (run(node(DType::F32, SWAPPED, &[OWN, 0], -1), [&two, &x]), "parts of 1 elements, not 3"),
        (run(node(DType::F32, SWAPPED, &[-4, 0], -1), [&x, &x]), "no part -4"),
        (run(node(DType::F32, UNLIKE, &[OTHER, 0], -1), [&x, &x]), "3 parts have no other one"),
    ] {
        assert!(matches!(&error, Error::InvalidArgument(m) if m.contains(said)), "{error}: {said}");
    }
}
