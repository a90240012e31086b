//! `_WgpuFusedUpdate` against steps written out in f64: types, shapes, many members in one dispatch
//! and scattered ones, windows, errors.

#[expect(dead_code, reason = "the comparison of sums is for contractions")]
mod numeric;

use numeric::{Random, epsilon, session};
use tensorflow_wgpu::device::{Device, Selection};
use tensorflow_wgpu::dtype::DType::*;
use tensorflow_wgpu::kernels::fused::update;
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor};

/// Adam as in Keras: m, v and the variable, a gradient, the rate; 1 - beta1, 1 - beta2 and epsilon.
const ADAM: &str = "x: T, T, T, T, T; c: 3; s0 = Sub<T>(x3, x0); s1 = Mul<T>(s0, c0); s2 = \
                    AddV2<T>(x0, s1); s3 = Square<T>(x3); s4 = Sub<T>(s3, x1); s5 = Mul<T>(s4, \
                    c1); s6 = AddV2<T>(x1, s5); s7 = Mul<T>(s2, x4); s8 = Sqrt<T>(s6); s9 = \
                    AddV2<T>(s8, c2); s10 = RealDiv<T>(s7, s9); s11 = Sub<T>(x2, s10); return s2, \
                    s6, s11";
const ADAM_CONSTANTS: [f32; 3] = [0.25, 0.125, 0.5];

/// The same in f64, whose rows take no parameters: the constants are scalars.
const ADAM64: &str = "x: float64, float64, float64, float64, float64, float64, float64, float64; \
                      c: 0; s0 = Sub<float64>(x3, x0); s1 = Mul<float64>(s0, x5); s2 = \
                      AddV2<float64>(x0, s1); s3 = Square<float64>(x3); s4 = Sub<float64>(s3, \
                      x1); s5 = Mul<float64>(s4, x6); s6 = AddV2<float64>(x1, s5); s7 = \
                      Mul<float64>(s2, x4); s8 = Sqrt<float64>(s6); s9 = AddV2<float64>(s8, x7); \
                      s10 = RealDiv<float64>(s7, s9); s11 = Sub<float64>(x2, s10); return s2, s6, \
                      s11";

/// An update under test: members with their variables and tensors, and scalars.
struct Case {
    expression: String,
    constants: Vec<f32>,
    variables: Vec<Vec<HostTensor>>,
    tensors: Vec<Vec<HostTensor>>,
    scalars: Vec<HostTensor>,
}

impl Case {
    fn node(&self) -> Node {
        let types = |t: Vec<&HostTensor>| t.iter().map(|t| t.dtype).collect::<Vec<_>>();
        Node::new(update::OP)
            .attr("N", self.variables.len() as i64)
            .attr("NR", self.variables.iter().flatten().count() as i64)
            .attr("Ttensors", &types(self.tensors.iter().flatten().collect())[..])
            .attr("Tscalars", &types(self.scalars.iter().collect())[..])
            .attr("expression", &self.expression[..])
            .attr("constants", &self.constants[..])
    }

    /// The values of all variables afterwards and the number of dispatches, or the error, after
    /// which the values must be the old ones.
    fn run(&self, session: &mut Session) -> Result<(Vec<Vec<HostTensor>>, u64), Error> {
        let handles: Vec<usize> =
            self.variables.iter().flatten().map(|v| session.variable(v).unwrap()).collect();
        let mut inputs: Vec<Input> = handles.iter().map(|h| Input::Variable(*h)).collect();
        inputs.extend(self.tensors.iter().flatten().chain(&self.scalars).cloned().map(Input::from));
        let before = session.device.statistics().dispatches;
        let ran = session.run(&self.node(), &inputs);
        let dispatches = session.device.statistics().dispatches - before;
        let mut values = handles.iter().map(|h| session.variable_value(*h).unwrap());
        let values: Vec<Vec<HostTensor>> = self
            .variables
            .iter()
            .map(|member| values.by_ref().take(member.len()).collect())
            .collect();
        if ran.is_err() {
            assert_eq!(values, self.variables);
        }
        // The session copies each variable before it is written.
        let copies = values.iter().flatten().filter(|v| !v.bytes.is_empty()).count() as u64;
        ran.map(|_| (values, dispatches - copies.min(dispatches)))
    }
}

/// A step of Adam for members of these shapes.
fn adam(random: &mut Random, dtype: DType, shapes: &[&[usize]]) -> Case {
    let mut positive = |dims: &[usize]| {
        let values: Vec<f64> = random.tensor(F64, dims).1.iter().map(|v| v.abs() + 0.5).collect();
        HostTensor::floats(dtype, dims, &values)
    };
    let variables =
        shapes.iter().map(|dims| vec![positive(dims), positive(dims), positive(dims)]).collect();
    let tensors = shapes.iter().map(|dims| vec![random.tensor(dtype, dims).0]).collect();
    let scalar = |v: f32| HostTensor::floats(dtype, &[], &[f64::from(v)]);
    let (expression, constants, extra) = if dtype == F64 {
        (ADAM64.to_owned(), Vec::new(), ADAM_CONSTANTS.map(scalar).to_vec())
    } else {
        (
            ADAM.replace("<T>", &format!("<{dtype}>"))
                .replace("T, T, T, T, T", &[dtype.name(); 5].join(", ")),
            ADAM_CONSTANTS.to_vec(),
            Vec::new(),
        )
    };
    let scalars = [vec![scalar(0.375)], extra].concat();
    Case { expression, constants, variables, tensors, scalars }
}

fn adam_reference(case: &Case, member: usize) -> [Vec<f64>; 3] {
    let old = |k: usize| case.variables[member][k].to_f64();
    let [b1, b2, eps] = ADAM_CONSTANTS.map(f64::from);
    let mut new = [old(0), old(1), old(2)];
    for (i, g) in case.tensors[member][0].to_f64().into_iter().enumerate() {
        new[0][i] += (g - new[0][i]) * b1;
        new[1][i] += (g * g - new[1][i]) * b2;
        new[2][i] -= new[0][i] * 0.375 / (new[1][i].sqrt() + eps);
    }
    new
}

fn check_adam(case: &Case, got: &[Vec<HostTensor>], what: &str) {
    for (member, values) in got.iter().enumerate() {
        for (k, want) in adam_reference(case, member).iter().enumerate() {
            let got = values[k].to_f64();
            let bound = 2.0 * epsilon(values[k].dtype);
            assert_eq!(got.len(), want.len());
            for (i, (g, w)) in got.iter().zip(want).enumerate() {
                assert!(
                    (g - w).abs() <= bound * w.abs().max(1.0),
                    "{what}: member {member}, variable {k}, element {i}: {g}, want {w}"
                );
            }
        }
    }
}

fn floats(session: &Session) -> Vec<DType> {
    [F32, F16, BF16, F64].into_iter().filter(|t| session.runs(*t)).collect()
}

const SHAPES: &[&[usize]] =
    &[&[3, 5], &[], &[0, 4], &[1], &[1024], &[1025], &[7, 11, 13], &[70_001], &[2]];

#[test]
fn members_of_one_block_take_one_dispatch() {
    // A separate device, because other tests count dispatches too.
    let selection = Selection::enumerate(&|name| std::env::var(name).ok());
    let mut session = Session::new(Device::open(&selection.adapters[0]).unwrap());
    let mut random = Random::new(1);
    session.use_arena(64 << 20).unwrap();
    for dtype in floats(&session) {
        for misalign in [0, 1] {
            session.misalign = misalign;
            let case = adam(&mut random, dtype, SHAPES);
            let (values, dispatches) = case.run(&mut session).unwrap();
            check_adam(&case, &values, &format!("{dtype}, misaligned by {misalign}"));
            // The upload of an odd number of 16-bit elements takes a dispatch.
            assert!(dtype.size() == 2 || dispatches == 1, "{dtype}: {dispatches} dispatches");
        }
    }
}

#[test]
fn scattered_members_are_right_too() {
    let (mut session, mut random) = (session(), Random::new(2));
    for dtype in floats(&session) {
        let case = adam(&mut random, dtype, SHAPES);
        check_adam(&case, &case.run(&mut session).unwrap().0, dtype.name());
    }
}

#[test]
fn types_mix_by_casts() {
    let (mut session, mut random) = (session(), Random::new(3));
    session.use_arena(1 << 20).unwrap();
    for (variable, gradient) in [(F32, F16), (F16, F32), (F32, BF16), (BF16, F16)] {
        let dims = [5, 9];
        let (v, old) = random.tensor(variable, &dims);
        let (g, step) = random.tensor(gradient, &dims);
        let expression = format!(
            "x: {variable}, {gradient}; c: 1; s0 = Mul<{gradient}>(x1, c0); s1 = Cast<{gradient}, \
             {variable}>(s0); s2 = Sub<{variable}>(x0, s1); return s2"
        );
        let case = Case {
            expression,
            constants: vec![0.5],
            variables: vec![vec![v]],
            tensors: vec![vec![g]],
            scalars: vec![],
        };
        let (values, _) = case.run(&mut session).unwrap();
        for (got, (old, step)) in values[0][0].to_f64().iter().zip(old.iter().zip(step)) {
            assert!(
                (got - (old - 0.5 * step)).abs() <= 2.0 * epsilon(BF16),
                "{variable} {gradient}: {got}"
            );
        }
    }
}

#[test]
fn counters_masks_and_single_elements() {
    let mut session = session();
    if !session.runs(DType::I64) {
        return;
    }
    // A counter of int64 advances, and a float is replaced by a single element if a mask says so.
    let case = Case {
        expression: "x: int64, float32, bool, float32, int64; c: 0; s0 = AddV2<int64>(x0, x4); s1 \
                     = SelectV2<float32>(x2, x3, x1); return s0, s1"
            .to_owned(),
        constants: vec![],
        variables: vec![
            vec![
                HostTensor::i64(&[3], &[1, i64::MAX - 4, -7]),
                HostTensor::f32(&[3], &[1.0, 2.0, 3.0]),
            ],
            vec![HostTensor::i64(&[], &[1 << 40]), HostTensor::f32(&[], &[4.0])],
        ],
        tensors: vec![
            vec![HostTensor::bool(&[3], &[true, false, true]), HostTensor::f32(&[], &[8.0])],
            vec![HostTensor::bool(&[], &[true]), HostTensor::f32(&[], &[9.0])],
        ],
        scalars: vec![HostTensor::i64(&[], &[4])],
    };
    for arena in [false, true] {
        if arena {
            session.use_arena(1 << 20).unwrap();
        }
        let (values, _) = case.run(&mut session).unwrap();
        assert_eq!(values[0][0].values::<i64>(), [5, i64::MAX, -3]);
        assert_eq!(values[0][1].values::<f32>(), [8.0, 2.0, 8.0]);
        assert_eq!(values[1][0].values::<i64>(), [(1 << 40) + 4]);
        assert_eq!(values[1][1].values::<f32>(), [9.0]);
    }
}

/// v - scale · g for each member.
fn descent(variables: Vec<Vec<HostTensor>>, tensors: Vec<Vec<HostTensor>>, scale: f32) -> Case {
    let expression = "x: float32, float32; c: 1; s0 = Mul<float32>(x1, c0); s1 = Sub<float32>(x0, \
                      s0); return s1"
        .to_owned();
    Case { expression, constants: vec![scale], variables, tensors, scalars: vec![] }
}

#[test]
fn variables_larger_than_a_binding_are_updated_in_runs() {
    let max = 1 << 20;
    let mut session = Session::binding(max as u64).unwrap();
    let n = max as usize / 4 + 1003;
    let gradient: Vec<f32> = (0..n).map(|i| (i % 64) as f32).collect();
    let case = descent(
        vec![vec![HostTensor::f32(&[n], &vec![1.5; n])]],
        vec![vec![HostTensor::f32(&[n], &gradient)]],
        0.5,
    );
    let (values, _) = case.run(&mut session).unwrap();
    assert!(values[0][0].values::<f32>().iter().zip(&gradient).all(|(g, d)| *g == 1.5 - 0.5 * d));
}

#[test]
fn constants_beyond_the_finite_arrive() {
    let mut session = session();
    let case = descent(
        vec![vec![HostTensor::f32(&[2], &[1.0, 2.0])]],
        vec![vec![HostTensor::f32(&[2], &[1.0, -1.0])]],
        f32::INFINITY,
    );
    let (values, _) = case.run(&mut session).unwrap();
    assert_eq!(values[0][0].values::<f32>(), [f32::NEG_INFINITY, f32::INFINITY]);
}

#[test]
fn nodes_that_do_not_fit_are_errors_and_change_nothing() {
    let mut session = session();
    let (two, three) = (HostTensor::f32(&[2], &[1.0, 2.0]), HostTensor::f32(&[3], &[1.0; 3]));
    let mut message = |case: &Case| match case.run(&mut session).unwrap_err() {
        Error::InvalidArgument(m) => m,
        other => panic!("{other:?}"),
    };
    let shapes = descent(
        vec![vec![two.clone()], vec![three.clone()]],
        vec![vec![two.clone()], vec![two.clone()]],
        1.0,
    );
    assert!(
        message(&shapes)
            .contains("Cannot update variable with shape [3] using a Tensor with shape [2]")
    );
    let mut pair = descent(vec![vec![two.clone(), three.clone()]], vec![vec![]], 1.0);
    pair.expression = "x: float32, float32; c: 1; return x0, x1".to_owned();
    assert!(
        message(&pair)
            .contains("variables 0 and 1 of member 0 do not have the same shape: [2] and [3]")
    );
    let mut scalar = descent(vec![vec![two.clone()]], vec![vec![]], 1.0);
    scalar.scalars = vec![two.clone()];
    assert!(message(&scalar).contains("scalar 0 has the shape [2]"));
    let mut constants = descent(vec![vec![two.clone()]], vec![vec![two.clone()]], 1.0);
    constants.constants.clear();
    assert!(message(&constants).contains("does not fit"));
    let mut types =
        descent(vec![vec![two.clone()]], vec![vec![HostTensor::i32(&[2], &[1, 2])]], 1.0);
    types.scalars.clear();
    assert!(message(&types).contains("does not fit"));
}

#[test]
fn a_variable_of_several_places_takes_every_change() {
    let mut session = session();
    for dtype in floats(&session) {
        // Two members of two variables each; the second member has the first one's again.
        let text = format!(
            "x: {dtype}, {dtype}, {dtype}; c: 0; s0 = AddV2<{dtype}>(x0, x2); s1 = \
             AddV2<{dtype}>(s0, x2); s2 = Mul<{dtype}>(x1, s1); return s0, s2"
        );
        for n in [0, 1, 3, 64, 1001] {
            let tensor = |v: f64| HostTensor::floats(dtype, &[n], &vec![v; n]);
            let node = Node::new(update::OP)
                .attr("N", 2_i64)
                .attr("NR", 4_i64)
                .attr("Ttensors", &[dtype; 2][..])
                .attr("Tscalars", &[][..] as &[DType])
                .attr("expression", &text[..])
                .attr("constants", &[][..] as &[f32]);
            let values = |places: [usize; 4], session: &mut Session| {
                let v: Vec<usize> = [2.0, 3.0, 5.0]
                    .iter()
                    .map(|x| session.variable(&tensor(*x)).unwrap())
                    .collect();
                let variables = places.map(|k| Input::Variable(v[k]));
                let tensors = [tensor(1.0), tensor(2.0)].map(Input::from);
                session.run(&node, &[variables.to_vec(), tensors.to_vec()].concat()).unwrap();
                v.iter()
                    .map(|v| session.variable_value(*v).unwrap().to_f64())
                    .map(|all| {
                        assert!(all.iter().all(|x| *x == all[0]), "{dtype} {n}: {all:?}");
                        all.first().copied()
                    })
                    .collect::<Vec<_>>()
            };
            let want = |values: [f64; 3]| values.map(|v| (n > 0).then_some(v)).to_vec();
            // Each alone: 2 + 1, 3 * 4; 5 + 2, 12 * 9.
            assert_eq!(values([0, 1, 2, 1], &mut session), want([3.0, 108.0, 7.0]), "{dtype} {n}");
            // 2 + 1, 3 * 4; 3 + 2, 12 * 7.
            assert_eq!(values([0, 1, 0, 1], &mut session), want([5.0, 84.0, 5.0]), "{dtype} {n}");
            // Within a member: 2 + 1, then 3 * (2 + 1 + 1); 3 + 2, 5 * (3 + 2 + 2).
            assert_eq!(values([0, 0, 1, 1], &mut session), want([12.0, 35.0, 5.0]), "{dtype} {n}");
        }
    }
}
