//! Gradients ask for the shapes of tensors that are not used otherwise. The shape of an elementwise
//! node's input, if it is certainly the same, serves as well, and the node can then be removed.

use crate::kernels::scalar;
use crate::optimizer::graph::{Graph, NodeId, Output};

/// Makes every `Shape` read the tensor furthest up a chain of elementwise nodes.
pub fn read_further_up(graph: &mut Graph, order: &[NodeId]) {
    for id in order {
        if graph.node(*id).op() != "Shape" || graph.may_go(*id).is_err() {
            continue;
        }
        let mut tensor = graph.node(*id).inputs()[0];
        while let Some(above) = above(graph, tensor) {
            tensor = above;
        }
        if tensor != graph.node(*id).inputs()[0] {
            graph.set_input(*id, 0, tensor);
        }
    }
}

/// An input of the elementwise node that makes a tensor, if it certainly has the tensor's type and
/// shape.
fn above(graph: &Graph, tensor: Output) -> Option<Output> {
    let node = graph.node(tensor.node);
    if !node.on_wgpu() || scalar::find(node.op()).is_none() {
        return None;
    }
    let info = graph.info(tensor);
    let same = |input: &&Output| {
        let above = graph.info(**input);
        above.dtype.is_some() && above.dtype == info.dtype && above.same_shape(info)
    };
    node.inputs().iter().find(same).copied()
}
