//! Changes of shape between elementwise nodes, such as the one between a group normalization and
//! its activation, divide what could be one group. So they are moved behind the nodes that read
//! them, and these nodes then compute in the original shape.
//!
//! A node is moved in front of changes of shape if all its inputs, except single numbers, are such
//! changes of tensors of one shape, and an elementwise node makes at least one of these tensors.

use rustc_hash::FxHashSet;

use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::legality::check;
use crate::optimizer::meaning::{Engine, SameShapes, is_view, scalar};
use crate::optimizer::passes::reshape::again;
use crate::optimizer::refusal::Refusal;

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
        match Moved::find(graph, &elementwise, id) {
            Ok(moved) => moved.apply(graph, id),
            Err(refusal) => {
                let inputs = graph.node(id).inputs().iter().map(|input| input.node);
                for view in inputs.filter(|input| parts(graph, &elementwise, *input)) {
                    graph.refuse("elementwise", [id, view], refusal);
                }
            }
        }
    }
}

/// Whether a node changes the shape of what an elementwise node makes.
fn parts(graph: &Graph, elementwise: &FxHashSet<NodeId>, id: NodeId) -> bool {
    let node = graph.node(id);
    is_view(node) && node.inputs().first().is_some_and(|made| elementwise.contains(&made.node))
}

/// The new place of a node.
struct Moved {
    /// The node's new inputs.
    inputs: Vec<Output>,
    /// One of the changes of shape.
    view: NodeId,
}

impl Moved {
    fn find(graph: &Graph, elementwise: &FxHashSet<NodeId>, id: NodeId) -> Result<Self, Refusal> {
        let node = graph.node(id);
        let output = Output { node: id, port: 0 };
        graph.may_move_freely(id)?;
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
            check(alike, Refusal::OtherShape)?;
            computed |= elementwise.contains(&source.node) && source.port == 0;
            inputs.push(source);
        }
        let (view, _) = view.filter(|_| computed).ok_or(Refusal::Alone)?;
        Ok(Self { inputs, view })
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
fn source(graph: &Graph, view: Output, reader: NodeId) -> Result<Output, Refusal> {
    let node = graph.node(view.node);
    let source = *node.inputs().first().filter(|_| is_view(node)).ok_or(Refusal::OtherShape)?;
    graph.share_device(view.node, reader)?;
    check(graph.is_alone(view.node), Refusal::OtherConditions)?;
    check(graph.users(view.node).len() <= MAX_USERS, Refusal::ReadElsewhere)?;
    let known = [source, view].iter().all(|tensor| graph.info(*tensor).shape.is_some());
    check(known, Refusal::OtherShape).map(|()| source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_tells_why_it_stays_behind_a_change_of_shape() {
        let text = "preserve b
            x = Placeholder -> float32[2, 6]
            y = Placeholder -> float32[3, 4]
            s = Const {value: tensor int32[2] [3, 4]} -> int32[2]
            a = Exp(x) {T: float32} -> float32[2, 6]
            r = Reshape(a, s) {T: float32, Tshape: int32} -> float32[3, 4]
            c = Mul(r, y) {T: float32} -> float32[3, 4]
            b = Custom(c)";
        let mut graph = Graph::from_text(text).unwrap();
        graph.keep_journal();
        run(&mut graph);
        let apart = graph.journal().unwrap().apart("c").unwrap();
        assert_eq!((&*apart.neighbour, apart.refusal), ("r", Refusal::OtherShape));
    }
}
