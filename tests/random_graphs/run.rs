//! Interprets a graph node by node.

use std::collections::{BTreeMap, BTreeSet};

use tensorflow_wgpu::kernels::expression::{Call, Expression};
use tensorflow_wgpu::kernels::fused::elementwise;
use tensorflow_wgpu::kernels::op::Attrs;
use tensorflow_wgpu::local::{self, Input, Session};
use tensorflow_wgpu::optimizer::attr::Attr;
use tensorflow_wgpu::optimizer::graph::{Graph, NodeId, Output};
use tensorflow_wgpu::optimizer::{attr, graph, proto::attr_value::Value};
use tensorflow_wgpu::{DType, HostTensor};

use super::super::numeric::Random;
use super::generate::Case;

/// Runs a node with an op that is not the interpreter's own.
pub type Engine<'e> = dyn FnMut(&local::Node, &[Input]) -> Vec<Input> + 'e;

/// The values of the fetches. Nodes run in a random order that data and control edges allow.
/// Handles of variables are their numbers.
pub fn run(
    graph: &Graph,
    case: &Case,
    random: &mut Random,
    engine: &mut Engine<'_>,
) -> Vec<HostTensor> {
    run_with_effects(graph, case, random, engine).0
}

/// The same, with the names of the nodes that did something besides giving a value, in the order of
/// the names.
pub fn run_with_effects(
    graph: &Graph,
    case: &Case,
    random: &mut Random,
    engine: &mut Engine<'_>,
) -> (Vec<HostTensor>, BTreeSet<String>) {
    // What does not run has no values, and so does what uses that, but a Merge.
    let mut values: BTreeMap<NodeId, Option<Vec<Option<Input>>>> = BTreeMap::new();
    let mut effects = BTreeSet::new();
    for id in order(graph, random) {
        let node = graph.node(id);
        let named =
            |list: &[(String, HostTensor)]| list.iter().position(|(name, _)| name == node.name());
        let read = |i: &Output| {
            values[&i.node].as_ref().and_then(|outputs| outputs[i.port as usize].clone())
        };
        let mut inputs: Vec<Option<Input>> = node.inputs().iter().map(read).collect();
        if node.op() == "Merge" {
            inputs.retain(Option::is_some);
            assert!(inputs.len() < 2, "two branches run");
        }
        let runs = node.controls().iter().all(|control| values[control].is_some());
        let Some(inputs) = inputs.into_iter().collect::<Option<Vec<Input>>>().filter(|_| runs)
        else {
            values.insert(id, None);
            continue;
        };
        if inputs.is_empty() && node.op() == "Merge" {
            values.insert(id, None);
            continue;
        }
        if node.op() == "Switch" {
            let chosen = usize::from(tensor(&inputs[1]).bytes[0] != 0);
            let output = |port| (port == chosen).then(|| inputs[0].clone());
            values.insert(id, Some(vec![output(0), output(1)]));
            continue;
        }
        if matches!(node.op(), "Assert" | "Print") {
            effects.insert(node.name().to_owned());
        }
        let outputs = match node.op() {
            "Placeholder" => vec![case.feeds[named(&case.feeds).expect("a feed")].1.clone().into()],
            "VarHandleOp" => vec![Input::Variable(named(&case.variables).expect("a variable"))],
            "Const" => {
                vec![graph.constant(Output { node: id, port: 0 }).expect("a small constant").into()]
            }
            "CheckNumerics" | "Identity" | "Merge" | "Print" | "StopGradient" => inputs,
            "Assert" | "NoOp" => Vec::new(),
            "Reshape" => {
                let mut value = tensor(&inputs[0]).clone();
                let dims = tensor(&inputs[1]).to_i64().unwrap();
                let known: usize = dims.iter().filter_map(|d| usize::try_from(*d).ok()).product();
                let count = value.bytes.len() / value.dtype.size();
                let extent = |d: &i64| usize::try_from(*d).unwrap_or_else(|_| count / known);
                value.dims = dims.iter().map(extent).collect();
                assert_eq!(value.dims.iter().product::<usize>(), count);
                vec![value.into()]
            }
            "Squeeze" => {
                let mut value = tensor(&inputs[0]).clone();
                let dropped = node.attr("squeeze_dims").and_then(Attr::ints).unwrap();
                let kept = value.dims.iter().enumerate().filter(|(axis, extent)| {
                    let dropped = dropped.contains(&(*axis as i64));
                    assert!(!dropped || **extent == 1, "{:?} without {axis}", value.dims);
                    !dropped
                });
                value.dims = kept.map(|(_, extent)| *extent).collect();
                vec![value.into()]
            }
            op => engine(&local_node(op, node), &inputs),
        };
        values.insert(id, Some(outputs.into_iter().map(Some).collect()));
    }
    let find =
        |name: &String| graph.find(name).unwrap_or_else(|| panic!("the fetch {name} is gone"));
    let fetched = |name: &String| match &values[&find(name)].as_ref().map(|outputs| &outputs[0]) {
        Some(Some(value)) => tensor(value).clone(),
        _ => panic!("the fetch {name} does not run:\n{}", graph.to_text()),
    };
    (case.fetches.iter().map(|(name, _)| fetched(name)).collect(), effects)
}

fn tensor(input: &Input) -> &HostTensor {
    match input {
        Input::Value(t) => t,
        Input::Variable(v) => panic!("the handle of variable {v} is no tensor"),
    }
}

/// A random order in which every node comes after those that it uses.
fn order(graph: &Graph, random: &mut Random) -> Vec<NodeId> {
    let edges = |id: NodeId| graph.node(id).inputs().len() + graph.node(id).controls().len();
    let mut missing: BTreeMap<NodeId, usize> = graph.ids().map(|id| (id, edges(id))).collect();
    let mut ready: Vec<NodeId> = graph.ids().filter(|id| missing[id] == 0).collect();
    let mut order = Vec::new();
    while !ready.is_empty() {
        let id = ready.swap_remove(random.below(ready.len()));
        order.push(id);
        for user in graph.users(id) {
            let left = missing.get_mut(user).expect("users are in the graph");
            *left -= 1;
            if *left == 0 {
                ready.push(*user);
            }
        }
    }
    assert_eq!(order.len(), graph.len(), "the graph has a cycle:\n{}", graph.to_text());
    order
}

/// The node's attributes as kernels read them.
fn local_node(op: &str, node: &graph::Node) -> local::Node {
    node.attrs().iter().fold(local::Node::new(op), |made, (name, value)| {
        match local_attr(name, value) {
            Some(local::Attr::Type(v)) => made.attr(name, v),
            Some(local::Attr::Int(v)) => made.attr(name, v),
            Some(local::Attr::Float(v)) => made.attr(name, v),
            Some(local::Attr::Bool(v)) => made.attr(name, v),
            Some(local::Attr::String(v)) => made.attr(name, v.as_str()),
            Some(local::Attr::Ints(v)) => made.attr(name, &v[..]),
            Some(local::Attr::Floats(v)) => made.attr(name, &v[..]),
            Some(local::Attr::Strings(v)) => {
                made.attr(name, &v.iter().map(String::as_str).collect::<Vec<_>>()[..])
            }
            Some(local::Attr::Types(v)) => made.attr(name, &v[..]),
            None => made,
        }
    })
}

fn local_attr(name: &str, attr: &attr::Attr) -> Option<local::Attr> {
    Some(match attr.value()? {
        Value::Type(_) => local::Attr::Type(attr.dtype()?),
        Value::I(v) => local::Attr::Int(*v),
        Value::F(v) => local::Attr::Float(*v),
        Value::B(v) => local::Attr::Bool(*v),
        Value::S(_) => local::Attr::String(attr.string()?.to_owned()),
        // An empty list does not say of what.
        Value::List(list) if !list.r#type.is_empty() || name.starts_with('T') => {
            local::Attr::Types(attr.dtypes()?)
        }
        Value::List(list) if !list.f.is_empty() || name.ends_with("constants") => {
            local::Attr::Floats(list.f.clone())
        }
        Value::List(list) => local::Attr::Ints(list.i.clone()),
        _ => return None,
    })
}

/// Runs nodes on the device.
pub struct OnDevice {
    pub session: Session,
    /// The session's variables by the case's.
    variables: Vec<usize>,
}

impl OnDevice {
    /// With fresh variables.
    pub fn new(mut session: Session, case: &Case) -> Self {
        let variables =
            case.variables.iter().map(|(_, value)| session.variable(value).unwrap()).collect();
        Self { session, variables }
    }

    /// One node.
    pub fn node(&mut self, node: &local::Node, inputs: &[Input]) -> Vec<Input> {
        let fail = |e: tensorflow_wgpu::Error| -> ! { panic!("{} {e}: {node:?}", node.op()) };
        let own = |input: &Input| match input {
            Input::Variable(v) => Input::Variable(self.variables[*v]),
            other => other.clone(),
        };
        match (node.op(), inputs) {
            ("ReadVariableOp", [Input::Variable(v)]) => vec![self.value(*v).into()],
            ("AssignVariableOp", [Input::Variable(v), Input::Value(value)]) => {
                self.variables[*v] = self.session.variable(value).unwrap();
                Vec::new()
            }
            _ => {
                let inputs: Vec<Input> = inputs.iter().map(own).collect();
                let outputs = self.session.run(node, &inputs).unwrap_or_else(|e| fail(e));
                outputs.into_iter().map(Into::into).collect()
            }
        }
    }

    /// The value of a variable.
    pub fn value(&self, variable: usize) -> HostTensor {
        self.session.variable_value(self.variables[variable]).unwrap()
    }
}

/// Runs nodes by the functions' references: scalar functions and what is fused of them.
pub fn on_host(node: &local::Node, inputs: &[Input]) -> Vec<Input> {
    let inputs: Vec<HostTensor> = inputs.iter().map(|i| tensor(i).clone()).collect();
    let (expression, constants) = if node.op() == elementwise::OP {
        (node.string("expression").unwrap().parse().unwrap(), node.floats("constants").unwrap())
    } else {
        let call = match node.op() {
            "Cast" => Call::Cast(node.dtype("SrcT").unwrap(), node.dtype("DstT").unwrap()),
            op => Call::row(op, node.dtype("T").unwrap())
                .unwrap_or_else(|| panic!("no function {op}")),
        };
        let mut expression = Expression::new();
        let mut args: Vec<_> = call.inputs().into_iter().map(|t| expression.input(t)).collect();
        args.extend(call.has_attr().then(|| expression.constant()));
        let value = expression.step(call, &args).unwrap();
        expression.output(value);
        (expression, if call.has_attr() { vec![node.float("alpha").unwrap()] } else { Vec::new() })
    };
    let values = expression
        .evaluate_tensors(&inputs, &constants)
        .unwrap_or_else(|e| panic!("{e}: {node:?}"));
    values.into_iter().map(Into::into).collect()
}

/// Fails unless both are the same within `tolerance`.
pub fn assert_same(got: &HostTensor, want: &HostTensor, tolerance: f64, what: &dyn Fn() -> String) {
    assert_eq!((got.dtype, &got.dims), (want.dtype, &want.dims), "{}", what());
    if got.dtype == DType::Bool {
        assert_eq!(got.bytes, want.bytes, "{}", what());
        return;
    }
    for (i, (g, w)) in got.to_f64().into_iter().zip(want.to_f64()).enumerate() {
        let same = g == w || (g.is_nan() && w.is_nan()) || (g - w).abs() <= tolerance;
        assert!(same, "element {i} is {g}, want {w} within {tolerance:e}\n{}", what());
    }
}
