//! Shapes that gradients ask for. A value of which only the shape is read would be stored for that.
//! So the shape is taken from a tensor of the same shape further up, if the shape of that tensor is
//! read already, or from the target of a `Reshape`.

use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::meaning::is_elementwise;

/// The largest number of elementwise nodes between two tensors of one shape.
const MAX_ROW: usize = 8;
/// The largest number of nodes between a vector of extents and the shapes that it is made of.
const MAX_DEPTH: u32 = 6;
/// The largest number of a tensor's users that are searched.
const MAX_USERS: usize = 64;

/// The output of another node that equals the output of the `Shape` node `id`.
pub fn source(graph: &Graph, id: NodeId) -> Option<Output> {
    let node = graph.node(id);
    let mut tensor = *node.inputs().first().filter(|_| node.op() == "Shape")?;
    let shape = graph.info(tensor);
    for _ in 0..MAX_ROW {
        if let Some(target) = target(graph, tensor, id) {
            return Some(target);
        }
        let maker = graph.node(tensor.node);
        if !is_elementwise(maker.op()) || maker.device() != node.device() {
            return None;
        }
        tensor = *maker.inputs().iter().find(|input| graph.info(**input).same_shape(shape))?;
        if let Some(other) = asked(graph, tensor, id) {
            return Some(other);
        }
    }
    None
}

/// Takes shapes from the targets of reshapes. To be called before `lists` turns targets of which
/// one extent is unknown into constants with -1.
pub fn take_targets(graph: &mut Graph, order: &[NodeId]) {
    for id in order.iter().copied() {
        if graph.node(id).op() == "Shape"
            && graph.may_move(id).is_ok()
            && let Some(source) = source(graph, id)
        {
            super::bypass(graph, id, source);
        }
    }
}

/// The shape of a tensor that a `Reshape` makes, as its target, if that names all extents in the
/// type of the `Shape` node `id`.
fn target(graph: &Graph, tensor: Output, id: NodeId) -> Option<Output> {
    let (node, maker) = (graph.node(id), graph.node(tensor.node));
    let &[_, target] = maker.inputs() else { return None };
    let kind = graph.node(id).attr("out_type").and_then(Attr::dtype);
    let from = graph.node(target.node);
    // In a branch, the target may exist where the tensor does not.
    let is_alike = maker.op() == "Reshape"
        && !graph.has_control_flow()
        && graph.info(target).rank() == Some(1)
        && maker.attr("Tshape").and_then(Attr::dtype) == kind
        && [maker, from].iter().all(|other| other.device() == node.device());
    (is_alike && are_extents(graph, target, MAX_DEPTH)).then_some(target)
}

/// Whether all elements of a tensor are certainly extents, not negative numbers.
fn are_extents(graph: &Graph, tensor: Output, depth: u32) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let node = graph.node(tensor.node);
    let (inputs, of) = (node.inputs(), |input: &Output| are_extents(graph, *input, depth));
    match node.op() {
        "Shape" | "ShapeN" => true,
        "Const" => {
            let numbers = graph.constant(tensor).and_then(|value| value.to_i64().ok());
            numbers.is_some_and(|numbers| numbers.iter().all(|n| *n >= 0))
        }
        "Pack" => inputs.iter().all(of),
        "ConcatV2" => inputs[..inputs.len().saturating_sub(1)].iter().all(of),
        "GatherV2" | "Prod" | "Slice" | "StridedSlice" => inputs.first().is_some_and(of),
        _ => false,
    }
}

/// The shape of a tensor, as the output of another node with the op and type of `id`.
fn asked(graph: &Graph, tensor: Output, id: NodeId) -> Option<Output> {
    if graph.users(tensor.node).len() > MAX_USERS {
        return None;
    }
    let node = graph.node(id);
    let kind = |id: NodeId| graph.node(id).attr("out_type").and_then(Attr::dtype);
    let like = |other: &NodeId| {
        let other_node = graph.node(*other);
        *other != id
            && other_node.op() == "Shape"
            && other_node.device() == node.device()
            && other_node.controls().is_empty()
            && kind(*other) == kind(id)
    };
    let mut readers = graph.readers(tensor).map(|(reader, _)| reader);
    readers.find(like).map(|node| Output { node, port: 0 })
}
