//! Constants with control inputs, as TensorFlow's constant folding leaves them.
//!
//! Such an edge makes a path through the constant that fusion must not break. The users of the
//! constant wait in its place, mostly for nodes for which they wait anyhow. Waits for values that
//! follow from constants alone are dropped: a gradient waits for the gradient before it, and if
//! that is constant, it exists from the start.

use crate::optimizer::graph::{Graph, NodeId};

/// The largest number of control edges that replace those of one constant.
const MAX_EDGES: usize = 64;

/// Removes the control inputs of constants. With control flow they stay: where parts of the graph
/// may not run, such an edge may decide whether the constant exists.
pub fn release(graph: &mut Graph) {
    if graph.has_control_flow() {
        return;
    }
    let waiting: Vec<NodeId> = graph.ids().filter(|id| is_released(graph, *id)).collect();
    for id in waiting {
        let controls = graph.node(id).controls().to_vec();
        for user in users(graph, id) {
            for control in &controls {
                if graph.node(user).inputs().iter().all(|input| input.node != *control) {
                    graph.add_control(user, *control);
                }
            }
        }
        controls.into_iter().for_each(|control| graph.remove_control(id, control));
    }
    let ids: Vec<NodeId> = graph.ids().filter(|id| graph.node(*id).on_wgpu()).collect();
    for id in ids {
        for control in graph.node(id).controls().to_vec() {
            if !graph.is_preserved(id) && is_constant(graph, control) {
                graph.remove_control(id, control);
            }
        }
    }
}

/// Whether a node depends only on constants, and none of them waits for anything.
fn is_constant(graph: &Graph, id: NodeId) -> bool {
    let settled = |id: NodeId| graph.node(id).controls().is_empty() && graph.is_pure(id);
    let constant = |id: NodeId| graph.node(id).op() == "Const" && settled(id);
    let node = graph.node(id);
    constant(id)
        || settled(id)
            && !node.inputs().is_empty()
            && node.inputs().iter().all(|i| constant(i.node))
}

fn is_released(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    if node.op() != "Const"
        || !node.on_wgpu()
        || node.controls().is_empty()
        || graph.is_preserved(id)
    {
        return false;
    }
    let users = users(graph, id);
    users.len() * node.controls().len() <= MAX_EDGES
        && users.iter().all(|user| graph.node(*user).on_wgpu())
}

fn users(graph: &Graph, id: NodeId) -> Vec<NodeId> {
    let mut users = graph.users(id).to_vec();
    users.sort_unstable();
    users.dedup();
    users
}
