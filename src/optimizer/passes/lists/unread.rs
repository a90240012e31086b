//! Lists from which no op takes an element stay empty: values that a loop leaves for a gradient
//! that does not need them after all. As with every unused node, an error that such a node would
//! have reported is lost.

use super::contents::{CARRIERS, Lists, are_stacks};
use crate::error::Result;
use crate::optimizer::graph::{Graph, NodeId, Output};

/// Removes all elements from such lists. An op that took an element out and left it unused takes
/// nothing out.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    let lists = Lists::of(graph, &order);
    let unread = lists.closed().filter(|(members, _)| is_unread(graph, members));
    let changes = |list: &Output| {
        matches!(graph.node(list.node).op(), "TensorListPopBack" | "TensorListPushBack")
    };
    let mut nodes: Vec<NodeId> = unread
        .flat_map(|(members, _)| members.iter().filter(|list| changes(list)))
        .map(|list| list.node)
        .collect();
    nodes.sort_unstable();
    for id in nodes {
        let list = graph.node(id).inputs()[0];
        graph.replace_readers(Output { node: id, port: 0 }, list);
        graph.remove(id);
    }
    Ok(())
}

/// Whether lists of one kind are never read: they are made, filled and emptied only by nodes that
/// can be changed.
fn is_unread(graph: &Graph, members: &[Output]) -> bool {
    let is_ours = |list: &Output| {
        let node = graph.node(list.node);
        let plain = node.on_wgpu() && !graph.is_preserved(list.node);
        plain
            && match node.op() {
                "TensorListPopBack" | "TensorListPushBack" => {
                    let item = Output { node: list.node, port: 1 };
                    let alone =
                        node.controls().is_empty() && graph.waiters(list.node).next().is_none();
                    alone && graph.readers_in_any_order(item).next().is_none()
                }
                op => CARRIERS.contains(&op),
            }
    };
    members.iter().all(is_ours) && are_stacks(graph, members)
}
