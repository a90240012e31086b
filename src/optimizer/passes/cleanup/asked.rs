//! Shapes that gradients ask for. A value of which only the shape is read would be stored for that.
//! So the shape is taken from a tensor of the same shape further up, if the shape of that tensor is
//! read already.

use crate::optimizer::attr::Attr;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::meaning::is_elementwise;

/// The largest number of elementwise nodes between two tensors of one shape.
const MAX_ROW: usize = 8;
/// The largest number of a tensor's users that are searched.
const MAX_USERS: usize = 64;

/// The output of another node that equals the output of the `Shape` node `id`.
pub fn source(graph: &Graph, id: NodeId) -> Option<Output> {
    let node = graph.node(id);
    let mut tensor = *node.inputs().first().filter(|_| node.op() == "Shape")?;
    let shape = graph.info(tensor);
    for _ in 0..MAX_ROW {
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
