//! Nodes that only change the shape. Several in a row become the last one, and a row that ends with
//! the first shape vanishes.

use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::meaning::is_view;

/// The largest number of such nodes in a row that are searched.
const MAX_ROW: usize = 64;

/// The tensor further up that has the shape and the elements of the node's output.
pub fn source(graph: &Graph, id: NodeId) -> Option<Output> {
    let mut tensor = before(graph, id)?;
    let info = graph.info(Output { node: id, port: 0 });
    for _ in 0..MAX_ROW {
        if graph.info(tensor).same_shape(info) {
            return Some(tensor);
        }
        tensor = before(graph, tensor.node).filter(|_| is_free(graph, id, tensor))?;
    }
    None
}

/// Makes a `Reshape` whose shape is fully given read the tensor at the start of a row of such
/// nodes.
pub fn shorten(graph: &mut Graph, id: NodeId) {
    let node = graph.node(id);
    if node.op() != "Reshape" || graph.may_go(id).is_err() {
        return;
    }
    let first = node.inputs()[0];
    let mut tensor = first;
    for _ in 0..MAX_ROW {
        let Some(further) = before(graph, tensor.node).filter(|_| is_free(graph, id, tensor))
        else {
            break;
        };
        tensor = further;
    }
    if tensor != first {
        graph.set_input(id, 0, tensor);
    }
}

/// Whether the node can read the input of the reshape that makes `tensor`. That reshape must have
/// no control inputs, and must certainly succeed.
fn is_free(graph: &Graph, id: NodeId, tensor: Output) -> bool {
    let from = graph.node(tensor.node);
    from.device() == graph.node(id).device()
        && from.controls().is_empty()
        && graph.info(tensor).dims().is_some()
}

/// The input of a node that changes only the shape.
fn before(graph: &Graph, id: NodeId) -> Option<Output> {
    let node = graph.node(id);
    is_view(node).then(|| node.inputs().first().copied())?
}
