//! ResourceApply* and ResourceSparseApply* against the references of their rows: every type,
//! attributes, odd and empty shapes, interior addresses, duplicate and invalid indices, windows,
//! errors.

#[path = "numeric/close.rs"]
mod close;
#[expect(dead_code, reason = "the comparison of sums is for contractions")]
mod numeric;

use close::{assert_within, tolerance};
use numeric::{Random, session};
use tensorflow_wgpu::kernels::training::table::{RULES, Rule};
use tensorflow_wgpu::local::{Input, Node, Session};
use tensorflow_wgpu::{DType, Error, HostTensor};

fn real(types: &[DType], session: &Session) -> Vec<DType> {
    types.iter().copied().filter(|t| t.is_float() && session.runs(*t)).collect()
}

/// The value of a scalar input.
fn scalar(name: &str) -> f64 {
    match name {
        "lr_power" => -0.5,
        "beta2" | "beta2_power" | "rho" | "beta" => 0.75,
        "epsilon" => 0.125,
        "momentum" | "beta1" | "beta1_power" => 0.5,
        "l1" => 0.0625,
        _ => 0.25,
    }
}

/// Values of the variables of a rule: slots are positive.
fn variables(rule: &Rule, random: &mut Random, dtype: DType, dims: &[usize]) -> Vec<HostTensor> {
    let slot = |(k, _): (usize, &&str)| {
        let (tensor, values) = random.tensor(dtype, dims);
        let signed = k == 0 || ["linear", "m", "mg"].contains(&rule.variables[k]);
        if signed {
            tensor
        } else {
            HostTensor::floats(
                dtype,
                dims,
                &values.iter().map(|v| v.abs() + 1.0).collect::<Vec<_>>(),
            )
        }
    };
    rule.variables.iter().enumerate().map(slot).collect()
}

struct Run<'s> {
    session: &'s mut Session,
    handles: Vec<usize>,
}

impl<'s> Run<'s> {
    fn new(session: &'s mut Session, values: &[HostTensor]) -> Self {
        let handles = values.iter().map(|v| session.variable(v).unwrap()).collect();
        Self { session, handles }
    }

    fn apply(
        &mut self,
        node: &Node,
        names: &[&str],
        given: impl Fn(&str) -> HostTensor,
    ) -> Result<(), Error> {
        let mut inputs: Vec<Input> = self.handles.iter().map(|h| Input::Variable(*h)).collect();
        inputs.extend(names.iter().map(|n| Input::from(given(n))));
        self.session.run(node, &inputs).map(drop)
    }

    fn values(&self) -> Vec<HostTensor> {
        self.handles.iter().map(|h| self.session.variable_value(*h).unwrap()).collect()
    }
}

fn assert_close(got: &[HostTensor], want: &[Vec<f64>], what: &str) {
    for (k, (got, want)) in got.iter().zip(want).enumerate() {
        let bound = |w: f64| tolerance(got.dtype) * w.abs().max(1.0);
        assert_within(got, want, bound, &format!("{what}: variable {k}"));
    }
}

fn node(op: &str, rule: &Rule, dtype: DType, flag: bool) -> Node {
    let node = Node::new(op).attr("T", dtype).attr("use_locking", false);
    rule.flag.map_or(node.clone(), |name| node.attr(name, flag))
}

#[test]
fn dense_updates_follow_their_references() {
    let mut session = session();
    for rule in RULES {
        for dtype in real(rule.types, &session) {
            for (dims, misalign) in [(&[][..], 0), (&[0, 3], 0), (&[7, 11], 1), (&[1030], 0)] {
                for flag in [false, true] {
                    // Rules that use signs jump if a sum is nearly zero. So the values are the same
                    // on every adapter.
                    let mut random = Random::new(1);
                    session.misalign = misalign;
                    let what = format!("{} {dtype} {dims:?} {flag}", rule.op);
                    let before = variables(rule, &mut random, dtype, dims);
                    let (gradient, g) = random.tensor(dtype, dims);
                    let mut run = Run::new(&mut session, &before);
                    run.apply(&node(rule.op, rule, dtype, flag), rule.dense, |name| match name {
                        "g" => gradient.clone(),
                        _ => HostTensor::floats(dtype, &[], &[scalar(name)]),
                    })
                    .unwrap();
                    let mut want: Vec<Vec<f64>> = before.iter().map(HostTensor::to_f64).collect();
                    let scalars: Vec<f64> = rule.scalars().map(scalar).collect();
                    for (i, g) in g.iter().enumerate() {
                        let mut state: Vec<f64> = want.iter().map(|v| v[i]).collect();
                        (rule.reference)(&mut state, &scalars, *g, flag);
                        want.iter_mut().zip(state).for_each(|(v, s)| v[i] = s);
                    }
                    assert_close(&run.values(), &want, &what);
                }
            }
        }
    }
}

#[test]
fn sparse_updates_take_duplicates_in_order_and_ignore_invalid_indices() {
    let (mut session, mut random) = (session(), Random::new(2));
    for rule in RULES {
        let Some(op) = rule.sparse_op else { continue };
        for dtype in real(rule.sparse_types, &session) {
            for (rows, inner, count, misalign) in [
                (5, 3, 9, 0),
                (6, 1, 4, 0),
                (3, 7, 40, 0),
                (4, 2, 0, 0),
                (5, 8, 12, 0),
                (6, 4, 9, 1),
            ] {
                session.misalign = misalign;
                for (flag, index) in [(false, DType::I32), (true, DType::I64)] {
                    let what =
                        format!("{op} {dtype} {index} {rows} x {inner}, {count} indices, {flag}");
                    let before = variables(rule, &mut random, dtype, &[rows, inner]);
                    let (gradient, g) = random.tensor(dtype, &[count, inner]);
                    let indices: Vec<i64> =
                        (0..count).map(|_| random.between(0, rows + 1) as i64 - 1).collect();
                    let index_tensor = match index {
                        DType::I32 => HostTensor::i32(
                            &[count],
                            &indices.iter().map(|i| *i as i32).collect::<Vec<_>>(),
                        ),
                        _ => HostTensor::i64(&[count], &indices),
                    };
                    let mut run = Run::new(&mut session, &before);
                    let node = node(op, rule, dtype, flag).attr("Tindices", index);
                    run.apply(&node, rule.sparse, |name| match name {
                        "g" => gradient.clone(),
                        "indices" => index_tensor.clone(),
                        _ => HostTensor::floats(dtype, &[], &[scalar(name)]),
                    })
                    .unwrap();
                    let mut want: Vec<Vec<f64>> = before.iter().map(HostTensor::to_f64).collect();
                    let scalars: Vec<f64> = rule.scalars().map(scalar).collect();
                    for (n, row) in indices.iter().enumerate() {
                        let Some(row) = usize::try_from(*row).ok().filter(|r| *r < rows) else {
                            continue;
                        };
                        for k in 0..inner {
                            let mut state: Vec<f64> =
                                want.iter().map(|v| v[row * inner + k]).collect();
                            (rule.reference)(&mut state, &scalars, g[n * inner + k], flag);
                            want.iter_mut().zip(state).for_each(|(v, s)| v[row * inner + k] = s);
                        }
                    }
                    assert_close(&run.values(), &want, &what);
                }
            }
        }
    }
}

#[test]
fn complex_steps_agree_with_complex_arithmetic() {
    let mut session = session();
    let tensor = |values: &[[f32; 2]]| HostTensor {
        dtype: DType::C64,
        dims: [values.len()].as_slice().into(),
        bytes: values.iter().flatten().flat_map(|v| v.to_le_bytes()).collect(),
    };
    let one = |re: f32, im: f32| HostTensor { dims: [].as_slice().into(), ..tensor(&[[re, im]]) };
    let mut run = Run::new(
        &mut session,
        &[tensor(&[[1.0, 2.0], [0.0, 0.0]]), tensor(&[[-3.0, -2.0], [0.0, 0.0]])],
    );
    let adagrad =
        Node::new("ResourceApplyAdagrad").attr("T", DType::C64).attr("update_slots", true);
    run.apply(&adagrad, &["lr", "g"], |n| {
        if n == "lr" { one(0.0, 1.0) } else { tensor(&[[0.0, 1.0], [0.0, 2.0]]) }
    })
    .unwrap();
    let parts = |t: &HostTensor| t.values::<[f32; 2]>().concat();
    let got = run.values();
    // accum: -3-2i + i² = -4-2i, whose root is 0.4858683 - 2.0581710i; -4, whose root is 2i.
    let accum = parts(&got[1]);
    assert_eq!(accum, [-4.0, -2.0, -4.0, 0.0]);
    let w = parts(&got[0]);
    for (g, want) in w.iter().zip([1.108_643_4_f32, 2.460_217_3, 0.0, -1.0]) {
        assert!((g - want).abs() < 1e-5, "{w:?}");
    }
}

#[test]
fn a_variable_given_twice_keeps_its_last_place() {
    let mut session = session();
    let v = session.variable(&HostTensor::f32(&[2], &[1.0, 2.0])).unwrap();
    let inputs = [
        Input::Variable(v),
        Input::Variable(v),
        HostTensor::f32(&[], &[0.5]).into(),
        HostTensor::f32(&[2], &[1.0, 1.0]).into(),
        HostTensor::f32(&[], &[0.5]).into(),
    ];
    let node = Node::new("ResourceApplyMomentum").attr("T", DType::F32).attr("use_nesterov", false);
    session.run(&node, &inputs).unwrap();
    assert_eq!(session.variable_value(v).unwrap().values::<f32>(), [1.5, 2.0]);
}

#[test]
fn errors_use_tensorflows_words_and_keep_the_values() {
    let mut session = session();
    let value = HostTensor::f32(&[2], &[1.0, 2.0]);
    let long = HostTensor::f32(&[3], &[1.0; 3]);
    let mut fails = |values: &[&HostTensor], lr: &HostTensor, gradient: &HostTensor| {
        let values: Vec<_> = values.iter().map(|v| (*v).clone()).collect();
        let mut run = Run::new(&mut session, &values);
        let node =
            Node::new("ResourceApplyMomentum").attr("T", DType::F32).attr("use_nesterov", false);
        let given = |n: &str| match n {
            "lr" => lr.clone(),
            "g" => gradient.clone(),
            _ => HostTensor::f32(&[], &[0.5]),
        };
        let error = run.apply(&node, &["lr", "g", "momentum"], given).unwrap_err();
        assert_eq!(run.values(), values);
        match error {
            Error::InvalidArgument(m) => m,
            other => panic!("{other:?}"),
        }
    };
    let rate = HostTensor::f32(&[], &[0.5]);
    assert!(
        fails(&[&value, &long], &rate, &value)
            .contains("var and accum do not have the same shape[2] [3]")
    );
    assert!(fails(&[&value, &value], &value, &value).contains("lr is not a scalar: [2]"));
    assert!(
        fails(&[&value, &value], &rate, &long)
            .contains("var and grad do not have the same shape[2] [3]")
    );
}

#[test]
fn variables_larger_than_a_binding_are_updated_in_windows() {
    let max = 1 << 20;
    let mut session = Session::binding(max as u64).unwrap();
    let n = max as usize / 4 + 1003;
    let gradient: Vec<f32> = (0..n).map(|i| (i % 64) as f32).collect();
    let mut run = Run::new(&mut session, &[HostTensor::f32(&[n], &vec![1.5; n])]);
    let node = Node::new("ResourceApplyGradientDescent").attr("T", DType::F32);
    run.apply(&node, &["alpha", "g"], |name| match name {
        "g" => HostTensor::f32(&[n], &gradient),
        _ => HostTensor::f32(&[], &[0.5]),
    })
    .unwrap();
    let got = run.values()[0].values::<f32>();
    assert!(got.iter().zip(&gradient).all(|(g, d)| *g == 1.5 - 0.5 * d));
}

#[test]
fn every_rule_is_complete() {
    for rule in RULES {
        assert!(
            rule.op.starts_with("ResourceApply")
                && !rule.step.is_empty()
                && rule.dense.contains(&"g")
        );
        assert!(rule.sparse_op.is_none() || rule.sparse.contains(&"indices"), "{}", rule.op);
        let mut sparse: Vec<_> = rule.sparse.iter().filter(|n| **n != "indices").collect();
        let mut dense: Vec<_> = rule.dense.iter().collect();
        sparse.sort();
        dense.sort();
        assert!(rule.sparse_op.is_none() || sparse == dense, "{}", rule.op);
    }
}
