//! Changes of shape between elementwise nodes, such as the one between a group normalization and
//! its activation, divide what could be one group. So they are moved behind the nodes that read
//! them, and these nodes then compute in the original shape.
//!
//! A node is moved in front of changes of shape if all its inputs, except single numbers, are such
//! changes of tensors of one shape, and an elementwise node makes at least one of these tensors.

use rustc_hash::FxHashSet;

use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::meaning::{Engine, SameShapes, is_view, scalar};
use crate::optimizer::passes::reshape::again;

/// The largest number of a reshape's readers that are considered.
const MAX_USERS: usize = 16;

/// Moves all nodes that can be moved.
pub fn run(graph: &mut Graph) {
    let Some(order) = graph.order() else { return };
    if graph.has_control_flow() {
        return;
    }
    let elementwise: FxHashSet<NodeId> = {
        let shapes = SameShapes::new(graph, &order);
        let is_scalar = |id: &NodeId| scalar(graph, &shapes, *id, Engine::Loop).is_ok();
        order.iter().copied().filter(is_scalar).collect()
    };
    for id in order.iter().copied().filter(|id| elementwise.contains(id)) {
        if let Some(moved) = Moved::find(graph, &elementwise, id) {
            moved.apply(graph, id);
        }
    }
}

/// The new place of a node.
struct Moved {
    /// The node's new inputs.
    inputs: Vec<Output>,
    /// One of the changes of shape.
    view: NodeId,
}

impl Moved {
    fn find(graph: &Graph, elementwise: &FxHashSet<NodeId>, id: NodeId) -> Option<Self> {
        let node = graph.node(id);
        let output = Output { node: id, port: 0 };
        graph.may_move_freely(id).ok()?;
        let mut inputs = Vec::new();
        let mut view = None;
        let mut computed = false;
        for input in node.inputs() {
            if graph.info(*input).rank() == Some(0) {
                inputs.push(*input);
                continue;
            }
            let source = source(graph, *input, id)?;
            let first = *view.get_or_insert((input.node, source));
            let alike = graph.info(source).same_shape(graph.info(first.1))
                && graph.info(*input).same_shape(graph.info(output));
            if !alike {
                return None;
            }
            computed |= elementwise.contains(&source.node) && source.port == 0;
            inputs.push(source);
        }
        let (view, _) = view.filter(|_| computed)?;
        Some(Self { inputs, view })
    }

    fn apply(self, graph: &mut Graph, id: NodeId) {
        let Self { inputs, view } = self;
        let output = Output { node: id, port: 0 };
        let old: Vec<NodeId> = graph.node(id).inputs().iter().map(|i| i.node).collect();
        let info = graph.info(output).clone();
        let readers: Vec<_> = graph.readers(output).collect();
        let source = graph.node(view).inputs()[0];
        let mut own = info.clone();
        own.shape.clone_from(&graph.info(source).shape);
        let name = format!("{}/behind", graph.node(id).name());
        graph.set_inputs(id, inputs);
        graph.set_infos(id, vec![own]);
        let new = again(graph, &name, view, output, info);
        let behind = graph.add(new);
        for (reader, index) in readers {
            graph.set_input(reader, index, Output { node: behind, port: 0 });
        }
        for view in old {
            if graph.contains(view) && is_view(graph.node(view)) {
                graph.remove_unused(view);
            }
        }
    }
}

/// The tensor that `view` reshapes, if its node is on the device of `reader` and does nothing else.
fn source(graph: &Graph, view: Output, reader: NodeId) -> Option<Output> {
    let node = graph.node(view.node);
    let plain = is_view(node)
        && graph.share_device(view.node, reader).is_ok()
        && graph.is_alone(view.node)
        && graph.users(view.node).len() <= MAX_USERS;
    let source = *node.inputs().first().filter(|_| plain)?;
    (graph.info(source).shape.is_some() && graph.info(view).shape.is_some()).then_some(source)
}
