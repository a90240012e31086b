//! Products in loops with the same operands in every step, and the elementwise nodes that depend
//! only on them: they are computed once, before the loop.
//!
//! A value is the same in every step if the loop passes it on unchanged: through a `Switch` of a
//! `Merge` of the loop's initial value and the output of the `Switch`. A value that is computed
//! before the loop enters it as a constant, and its own `Switch` tells whether there is a step.

use crate::error::Result;
use crate::kernels::scalar;
use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, NewNode, NodeId, Output};

/// Ops for which it is worthwhile to keep a tensor while the loop runs.
const PRODUCTS: &[&str] =
    &["BatchMatMulV2", "Conv2D", "Conv3D", "DepthwiseConv2dNative", "Einsum", "MatMul"];

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    if !order.iter().any(|id| graph.node(*id).op() == "LoopCond") {
        return Ok(());
    }
    for id in order.iter().copied() {
        if let Some(outside) = Outside::find(graph, id) {
            outside.replace(graph, id);
        }
    }
    Ok(())
}

/// A value that is the same in every step.
#[derive(Clone, Copy)]
struct Invariant {
    /// The tensor before the loop.
    tensor: Output,
    /// The node that takes the tensor into the loop.
    enter: NodeId,
    /// The tensor that tells whether there is another step.
    condition: Output,
}

impl Invariant {
    /// Whether both values belong to the same loop.
    fn goes_with(&self, other: &Self, graph: &Graph) -> bool {
        let frame = |enter: NodeId| graph.node(enter).attr("frame_name").and_then(Attr::string);
        self.condition == other.condition && frame(self.enter) == frame(other.enter)
    }
}

/// The invariant behind a tensor that a step reads, if the tensor is the same in every step.
fn invariant(graph: &Graph, tensor: Output) -> Option<Invariant> {
    let switch = graph.node(tensor.node);
    let &[value, condition] = switch.inputs() else { return None };
    if switch.op() != "Switch" || tensor.port != 1 || graph.node(condition.node).op() != "LoopCond"
    {
        return None;
    }
    let from = graph.node(value.node);
    let enter = match (from.op(), from.inputs()) {
        ("Enter", _) => {
            from.attr("is_constant").and_then(Attr::bool).filter(|is| *is)?;
            value.node
        }
        ("Merge", [begin, back]) => {
            let next = graph.node(back.node);
            let same = next.op() == "NextIteration" && next.inputs() == [tensor];
            (same && graph.node(begin.node).op() == "Enter").then_some(begin.node)?
        }
        _ => return None,
    };
    Some(Invariant { tensor: *graph.node(enter).inputs().first()?, enter, condition })
}

/// A node of a loop's steps that can be moved before the loop.
struct Outside {
    inputs: Vec<Invariant>,
}

impl Outside {
    fn find(graph: &Graph, id: NodeId) -> Option<Self> {
        let node = graph.node(id);
        let is_product = PRODUCTS.contains(&node.op());
        let follows = node.op() == "BiasAdd" || scalar::find(node.op()).is_some();
        if !(is_product || follows) || graph.may_go(id).is_err() {
            return None;
        }
        let inputs: Vec<Invariant> =
            node.inputs().iter().map(|input| invariant(graph, *input)).collect::<Option<_>>()?;
        let (first, others) = inputs.split_first()?;
        let is_step = |control: &NodeId| {
            let pivot = graph.node(*control);
            let switch = pivot.inputs().first().map(|input| (input.port, graph.node(input.node)));
            pivot.op() == "Identity"
                && switch.is_some_and(|(port, switch)| {
                    port == 1 && switch.op() == "Switch" && switch.inputs()[1] == first.condition
                })
        };
        // The node would run even if there is no step, so all its shapes must be known.
        let known = |tensor: Output| graph.info(tensor).dims().is_some();
        let fits = others.iter().all(|other| other.goes_with(first, graph))
            && node.controls().iter().all(is_step)
            && graph.waiters(id).next().is_none()
            && inputs.iter().all(|input| known(input.tensor))
            && known(Output { node: id, port: 0 })
            && (is_product || inputs.iter().any(|input| is_made(graph, input)));
        fits.then_some(Self { inputs })
    }

    fn replace(self, graph: &mut Graph, id: NodeId) {
        let first = self.inputs[0];
        let node = graph.node(id);
        let (name, op, device) =
            (node.name().to_owned(), node.op().to_owned(), node.device().to_owned());
        let info = graph.info(Output { node: id, port: 0 }).clone();
        let Some(dtype) = info.dtype else { return };
        let attrs: Vec<_> = node.attrs().iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        let new = |name: String, op: &str, inputs: Vec<Output>, infos| NewNode {
            name,
            op: op.to_owned(),
            device: device.clone(),
            inputs,
            controls: Vec::new(),
            attrs: vec![("T", dtype.into())],
            infos,
        };
        let inputs = self.inputs.iter().map(|input| input.tensor).collect();
        let made = graph.add(new(format!("{name}/in_front"), &op, inputs, vec![info.clone()]));
        attrs.into_iter().for_each(|(key, value)| graph.set_attr(made, &key, value));
        let made = Output { node: made, port: 0 };
        let mut enter = new(format!("{name}/enter"), "Enter", vec![made], vec![info.clone()]);
        let of_loop = graph.node(first.enter);
        for key in ["frame_name", "parallel_iterations"] {
            enter.attrs.extend(of_loop.attr(key).map(|value| (key, value.clone())));
        }
        enter.attrs.push(("is_constant", true.into()));
        let enter = Output { node: graph.add(enter), port: 0 };
        let inputs = vec![enter, first.condition];
        let switch = new(format!("{name}/step"), "Switch", inputs, vec![info.clone(), info]);
        let switch = graph.add(switch);
        graph.replace_readers(Output { node: id, port: 0 }, Output { node: switch, port: 1 });
        graph.remove(id);
    }
}

/// Whether this pass has moved the computation of a value before the loop.
fn is_made(graph: &Graph, value: &Invariant) -> bool {
    graph.node(value.enter).attr("is_constant").and_then(Attr::bool) == Some(true)
}
