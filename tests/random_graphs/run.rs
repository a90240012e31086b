//! Runs single nodes: by the functions' references, or on the device.

use tensorflow_wgpu::kernels::expression::{Call, Expression};
use tensorflow_wgpu::kernels::fused::{elementwise, region};
use tensorflow_wgpu::kernels::op::Attrs;
use tensorflow_wgpu::local::{self, Input, Session};
use tensorflow_wgpu::optimizer::attr::Attr;
use tensorflow_wgpu::optimizer::graph;
use tensorflow_wgpu::optimizer::graph::{Graph, NodeId, Output};
use tensorflow_wgpu::{DType, HostTensor, Result};

use super::generate::Case;

/// Runs a node with an op that the interpreter does not execute itself.
pub type Engine<'e> = dyn FnMut(&local::Node, &[Input]) -> Vec<Input> + 'e;

/// The outputs of a node that runs with these inputs; only some outputs of a `Switch` are alive.
pub fn evaluate(
    graph: &Graph,
    id: NodeId,
    inputs: Vec<Input>,
    case: &Case,
    engine: &mut Engine<'_>,
) -> Vec<Option<Input>> {
    let node = graph.node(id);
    let named =
        |list: &[(String, HostTensor)]| list.iter().position(|(name, _)| name == node.name());
    let only = |chosen: usize, count: usize| {
        (0..count).map(|port| (port == chosen).then(|| inputs[0].clone())).collect()
    };
    let outputs = match node.op() {
        "Switch" => return only(usize::from(tensor(&inputs[1]).bytes[0] != 0), 2),
        "_SwitchN" => {
            let count = node.attr("num_outs").and_then(Attr::int).unwrap() as usize;
            let index = tensor(&inputs[1]).to_i64().unwrap()[0];
            let last = count - 1;
            return only(usize::try_from(index).map_or(last, |index| index.min(last)), count);
        }
        "Placeholder" => vec![case.feeds[named(&case.feeds).expect("a feed")].1.clone().into()],
        "VarHandleOp" => vec![Input::Variable(named(&case.variables).expect("a variable"))],
        "Const" => {
            vec![graph.constant(Output { node: id, port: 0 }).expect("a small constant").into()]
        }
        "CheckNumerics" | "Enter" | "Exit" | "Identity" | "LoopCond" | "NextIteration"
        | "Print" | "StopGradient" => inputs,
        "Assert" | "NoOp" => Vec::new(),
        "Reshape" => vec![reshaped(&inputs).into()],
        "ExpandDims" => {
            let mut value = tensor(&inputs[0]).clone();
            let axis = tensor(&inputs[1]).to_i64().unwrap()[0];
            value.dims.insert(usize::try_from(axis).expect("an axis from the front"), 1);
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
        op => match in_host_memory(op, &inputs) {
            Some(value) => vec![value.into()],
            None => engine(&local_node(op, node), &inputs),
        },
    };
    outputs.into_iter().map(Some).collect()
}

fn reshaped(inputs: &[Input]) -> HostTensor {
    let mut value = tensor(&inputs[0]).clone();
    let dims = tensor(&inputs[1]).to_i64().unwrap();
    let known: usize = dims.iter().filter_map(|d| usize::try_from(*d).ok()).product();
    let count = value.bytes.len() / value.dtype.size();
    let extent = |d: &i64| usize::try_from(*d).unwrap_or_else(|_| count / known);
    value.dims = dims.iter().map(extent).collect();
    assert_eq!(value.dims.iter().product::<usize>(), count);
    value
}

/// Counters and conditions, which kernels compute in host memory.
fn in_host_memory(op: &str, inputs: &[Input]) -> Option<HostTensor> {
    let [Input::Value(a), Input::Value(b)] = inputs else { return None };
    let scalars = |dtype| a.dtype == dtype && a.dims.is_empty() && b.dims.is_empty();
    let is_true = |t: &HostTensor| t.bytes[0] != 0;
    if scalars(DType::Bool) && matches!(op, "LogicalAnd" | "_WgpuHostLogicalAnd") {
        return Some(HostTensor::bool(&[], &[is_true(a) && is_true(b)]));
    }
    if !scalars(DType::I32) {
        return None;
    }
    let (a, b) = (a.values::<i32>()[0], b.values::<i32>()[0]);
    match op {
        "AddV2" => Some(HostTensor::i32(&[], &[a + b])),
        "Less" => Some(HostTensor::bool(&[], &[a < b])),
        _ => None,
    }
}

/// The tensor of an input.
pub fn tensor(input: &Input) -> &HostTensor {
    match input {
        Input::Value(t) => t,
        Input::Variable(v) => panic!("the handle of variable {v} is no tensor"),
    }
}

/// The node as kernels read it.
fn local_node(op: &str, node: &graph::Node) -> local::Node {
    let add = |made: local::Node, (name, value): (&String, &Attr)| made.attr(name, value.clone());
    node.attrs().iter().fold(local::Node::new(op), add)
}

/// Runs nodes on the device.
pub struct OnDevice {
    pub session: Session,
    /// The session's variables by the case's.
    variables: Vec<usize>,
    /// The regions whose run was replayed.
    pub replayed: usize,
}

impl OnDevice {
    /// A device with fresh variables.
    pub fn new(mut session: Session, case: &Case) -> Self {
        let variables =
            case.variables.iter().map(|(_, value)| session.variable(value).unwrap()).collect();
        Self { session, variables, replayed: 0 }
    }

    /// Runs one node.
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
                let run = match node.op() {
                    region::OP => self.region(node, inputs),
                    _ => {
                        let inputs: Vec<Input> = inputs.iter().map(own).collect();
                        self.session.run(node, &inputs)
                    }
                };
                let outputs = run.unwrap_or_else(|e| fail(e));
                outputs.into_iter().map(Into::into).collect()
            }
        }
    }

    /// Runs a region four times, each time with the variables as they are. The first or second run
    /// is recorded, if its shaders are compiled; the next does the work twice, for its replay is
    /// compared; the last is only replayed.
    fn region(&mut self, node: &local::Node, inputs: &[Input]) -> Result<Vec<HostTensor>> {
        let node = node.clone().attr("check", true);
        let row = self.session.registry().find(region::OP, |name| node.dtype(name).ok());
        let kernel = (row.expect("a kernel").create)(&node)?;
        let start: Vec<HostTensor> = (0..self.variables.len()).map(|v| self.value(v)).collect();
        let mut dispatches = [0; 4];
        let mut runs = Vec::new();
        for count in &mut dispatches {
            for (variable, value) in self.variables.iter_mut().zip(&start) {
                *variable = self.session.variable(value)?;
            }
            let own = |input: &Input| match input {
                Input::Variable(v) => Input::Variable(self.variables[*v]),
                other => other.clone(),
            };
            let inputs: Vec<Input> = inputs.iter().map(own).collect();
            let before = self.session.device.statistics().dispatches;
            let outputs = self.session.run_kernel(&*kernel, &inputs)?;
            *count = self.session.device.statistics().dispatches - before;
            let changed: Vec<HostTensor> =
                (0..self.variables.len()).map(|v| self.value(v)).collect();
            runs.push((outputs, changed));
        }
        let [_, second, third, last] = dispatches;
        self.replayed += usize::from(last > 0 && second.max(third) >= 2 * last);
        let (replay, changed) = runs.pop().expect("four runs");
        for (outputs, values) in &runs {
            assert_eq!(bits(outputs), bits(&replay), "{node:?}");
            assert_eq!(bits(values), bits(&changed), "variables: {node:?}");
        }
        Ok(replay)
    }

    /// The value of a variable.
    pub fn value(&self, variable: usize) -> HostTensor {
        self.session.variable_value(self.variables[variable]).unwrap()
    }
}

/// The bytes of tensors, which tell one NaN from another.
fn bits(tensors: &[HostTensor]) -> Vec<&[u8]> {
    tensors.iter().map(|tensor| &tensor.bytes[..]).collect()
}

/// Runs nodes by the functions' references: scalar functions and fused expressions of them.
pub fn on_host(node: &local::Node, inputs: &[Input]) -> Vec<Input> {
    let inputs: Vec<HostTensor> = inputs.iter().map(|i| tensor(i).clone()).collect();
    let (expression, constants) = if node.op() == elementwise::OP {
        (node.string("expression").unwrap().parse().unwrap(), node.floats("constants").unwrap())
    } else {
        let call = match node.op() {
            "Cast" => Call::Cast(node.dtype("SrcT").unwrap(), node.dtype("DstT").unwrap()),
            "Bitcast" => {
                Call::bitcast(node.dtype("T").unwrap(), node.dtype("type").unwrap()).unwrap()
            }
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

/// Fails unless both are equal within `tolerance`.
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

/// The number in a variable of the environment, such as the number of graphs.
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}
