//! ArgMax and ArgMin of an elementwise value that no other node reads.
//!
//! Keras's `argmax` converts its input to float32 and gives negative zeros a value of their own. So
//! the accuracy of a language model would store the logits again, in twice their bytes. A fused
//! reduction computes these values as it compares them.
//!
//! The node that makes the values may make others, too, such as the logits of quantized weights.
//! Then it makes only those, and the reduction computes its values from them.

use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::kernels::expression::Value;
use crate::kernels::fused::arg::{self, OP};
use crate::kernels::fused::elementwise;
use crate::optimizer::attr::Attr;
use crate::optimizer::branches::Branches;
use crate::optimizer::emit::{Draft, fused};
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::legality::check;
use crate::optimizer::meaning::{Engine, Meaning};
use crate::optimizer::refusal::Refusal;

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    let is_reduction = |id: &NodeId| arg::reduction(graph.node(*id).op()).is_some();
    let reductions: Vec<NodeId> = order.iter().copied().filter(is_reduction).collect();
    if reductions.is_empty() {
        return Ok(());
    }
    let branches = Branches::of(graph, &order);
    for id in reductions {
        let Some(value) = graph.node(id).inputs().first().copied() else { continue };
        match Fusion::of(graph, &branches, id, value) {
            Ok(found) => found.replace(graph),
            Err(reason) if is_computed(graph, value.node) => {
                graph.refuse("args", [id, value.node], reason);
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// Whether a node computes elements.
fn is_computed(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    node.op() == elementwise::OP || Meaning::of(node).scalar().is_some()
}

/// An arg-reduction with the node that computes its values.
struct Fusion {
    reduction: NodeId,
    /// The node that computes the values.
    maker: NodeId,
    /// The values, and the tensors that they are computed from.
    draft: Draft,
    tensors: Vec<Output>,
    /// The maker of the other outputs, if there are any.
    rest: Option<Rest>,
}

/// A fused elementwise node without one of its outputs.
struct Rest {
    /// The ports that are left.
    ports: Vec<u32>,
    draft: Draft,
    inputs: Vec<Output>,
}

impl Fusion {
    /// The fusion of a node with the node that computes its input `value`.
    ///
    /// # Errors
    /// The reason why there is none.
    fn of(
        graph: &Graph,
        branches: &Branches,
        reduction: NodeId,
        value: Output,
    ) -> Result<Self, Refusal> {
        let maker = value.node;
        graph.may_go(reduction)?;
        graph.may_join(maker, reduction)?;
        graph.stays_inside(value, |reader| reader == reduction)?;
        branches.run_together(maker, reduction)?;
        let node = graph.node(maker);
        let is_shared = node.op() == elementwise::OP && node.infos().len() > 1;
        let (draft, tensors) = if is_shared {
            Self::behind_others(graph, value)?
        } else {
            graph.is_one_node(&[maker, reduction])?;
            Self::values(graph, maker)?
        };
        let rest =
            if is_shared { Some(Rest::of(graph, value).ok_or(Refusal::OtherShape)?) } else { None };
        let expression = &draft.expression;
        check(arg::fits(tensors.len(), expression.constants()), Refusal::TooManyTensors)?;
        check(!draft.gives_parameters(), Refusal::Operand)?;
        check(arg::compares(expression.output_type(0)), Refusal::Type(expression.output_type(0)))?;
        // Several tensors may broadcast.
        let shape = graph.info(value);
        let is_whole =
            |tensor: &Output| tensor.node == maker || graph.info(*tensor).same_shape(shape);
        let is_only = tensors.len() == 1 && !is_shared;
        check(is_only || tensors.iter().all(is_whole), Refusal::OtherShape)?;
        Ok(Self { reduction, maker, draft, tensors, rest })
    }

    /// The values of one output of a fused node, and the tensors that they are computed from: the
    /// node's other outputs, and its inputs.
    fn behind_others(graph: &Graph, value: Output) -> Result<(Draft, Vec<Output>), Refusal> {
        let node = graph.node(value.node);
        let all = Draft::of(node).ok_or(Refusal::Operand)?;
        let Some(made) = all.expression.outputs().get(value.port as usize).copied() else {
            return Err(Refusal::Operand);
        };
        let stored = |of: Value| {
            let others = all.expression.outputs().iter().zip(0..);
            let mut others = others.filter(|(_, port)| *port != value.port);
            others.find(|(other, _)| **other == of).map(|(_, port)| port)
        };
        check(stored(made).is_none(), Refusal::ReadElsewhere)?;
        let (mut draft, mut tensors) = (Draft::default(), Vec::new());
        let mut known: FxHashMap<Value, Value> = FxHashMap::default();
        for of in all.expression.sources(&[made], |of| stored(of).is_some()) {
            let tensor = match (stored(of), of) {
                (Some(port), _) => Some(Output { node: value.node, port }),
                (None, Value::Input(at)) => node.inputs().get(at as usize).copied(),
                _ => None,
            };
            let new = match (tensor, of) {
                (Some(tensor), _) => {
                    let dtype = all.expression.dtype(of).ok().flatten().ok_or(Refusal::NoType)?;
                    tensors.push(tensor);
                    Some(draft.input(dtype))
                }
                (None, Value::Constant(at)) => {
                    all.constants.get(at as usize).map(|number| draft.constant(*number))
                }
                (None, Value::Step(at)) => {
                    let step = &all.expression.steps()[at as usize];
                    let args: Vec<Value> = step.args.iter().map(|arg| known[arg]).collect();
                    draft.call(step.call, &args)
                }
                (None, Value::Input(_)) => None,
            };
            known.insert(of, new.ok_or(Refusal::Operand)?);
        }
        draft.output(known[&made]);
        Ok((draft, tensors))
    }

    /// The value that a node computes, and the tensors that it reads.
    fn values(graph: &Graph, maker: NodeId) -> Result<(Draft, Vec<Output>), Refusal> {
        let node = graph.node(maker);
        if node.op() == elementwise::OP {
            let draft = Draft::of(node).ok_or(Refusal::Operand)?;
            check(draft.expression.outputs().len() == 1, Refusal::TooManyTensors)?;
            return Ok((draft, node.inputs().to_vec()));
        }
        let scalar = Meaning::of(node).scalar().ok_or(Refusal::NoFunction)?;
        scalar.suits(Engine::Loop)?;
        // A node with several inputs may broadcast them, or read constants.
        let &[input] = node.inputs() else { return Err(Refusal::Operand) };
        let mut draft = Draft::default();
        let x = draft.input(scalar.input_type(0));
        let value = draft.scalar(&scalar, &[x]).ok_or(Refusal::Operand)?;
        draft.output(value);
        Ok((draft, vec![input]))
    }

    fn replace(self, graph: &mut Graph) {
        let node = graph.node(self.reduction);
        let (op, output_type) = (node.op().to_owned(), node.dtype("output_type"));
        let (Some(&dimension), Some(output_type)) = (node.inputs().get(1), output_type) else {
            return;
        };
        let mut attrs = vec![
            ("T_in", Attr::from(self.draft.expression.inputs())),
            ("output_type", output_type.into()),
            ("reduction", op.into()),
        ];
        attrs.extend(self.draft.attrs());
        let index = Output { node: self.reduction, port: 0 };
        let infos = vec![graph.info(index).clone()];
        let inputs = [&self.tensors[..], &[dimension]].concat();
        let new = fused(graph, self.reduction, "fused_arg", OP, inputs, attrs, infos);
        let Some(rest) = self.rest else {
            graph.replace_region(&[self.maker, self.reduction], new, &[(index, 0)]);
            return;
        };
        graph.replace_region(&[self.reduction], new, &[(index, 0)]);
        rest.replace(graph, self.maker);
    }
}

impl Rest {
    /// The node that makes `value`, without it. `None` if its shape would then be unknown.
    fn of(graph: &Graph, value: Output) -> Option<Self> {
        let node = graph.node(value.node);
        let Draft { expression, constants } = Draft::of(node)?;
        let ports = (0..node.infos().len() as u32).filter(|port| *port != value.port);
        let ports: Vec<u32> = ports.collect();
        let values = ports.iter().map(|port| expression.outputs().get(*port as usize).copied());
        let (expression, inputs) = expression.select(&values.collect::<Option<Vec<_>>>()?);
        let inputs = inputs.into_iter().map(|at| node.inputs().get(at).copied());
        let inputs: Vec<Output> = inputs.collect::<Option<_>>()?;
        // An input may be there for its shape alone.
        let whole = graph.info(value);
        let has_shape = inputs.iter().any(|input| graph.info(*input).same_shape(whole));
        let draft = Draft { expression, constants };
        (has_shape || inputs.len() == node.inputs().len()).then_some(Self { ports, draft, inputs })
    }

    fn replace(self, graph: &mut Graph, maker: NodeId) {
        let Self { ports, draft, inputs } = self;
        let node = graph.node(maker);
        let infos = ports.iter().map(|port| node.infos()[*port as usize].clone()).collect();
        let mut attrs = vec![
            ("T_in", Attr::from(draft.expression.inputs())),
            ("T_out", draft.expression.output_types()[..].into()),
        ];
        attrs.extend(draft.attrs());
        let new = fused(graph, maker, "rest", elementwise::OP, inputs, attrs, infos);
        let of = |port: &u32| Output { node: maker, port: *port };
        let outputs: Vec<(Output, u32)> =
            ports.iter().zip(0..).map(|(port, new)| (of(port), new)).collect();
        graph.replace_region(&[maker], new, &outputs);
    }
}
