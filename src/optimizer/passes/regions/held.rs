//! Variables whose values a region would hold while it changes them.
//!
//! TensorFlow keeps the inputs of a node until it has run. If a variable's value is among them, a
//! change of the variable within the region could not be in place.

use rustc_hash::{FxHashMap, FxHashSet};

use super::member::{Member, Place, Role};
use crate::kernels::fused::region::members::READ;
use crate::kernels::fused::region::views::View;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::variables::Handles;

/// The members of a region that change a variable whose value comes in from outside.
pub fn changes(
    graph: &Graph,
    region: &[NodeId],
    members: &FxHashMap<NodeId, Member>,
) -> Vec<NodeId> {
    let changing: Vec<NodeId> =
        region.iter().copied().filter(|id| members[id].role == Role::Changes).collect();
    if changing.is_empty() {
        return changing;
    }
    let inside: FxHashSet<NodeId> = region.iter().copied().collect();
    let mut handles = Handles::default();
    let mut held: FxHashSet<Output> = FxHashSet::default();
    for (id, input) in
        region.iter().flat_map(|id| graph.node(*id).inputs().iter().map(move |i| (id, i)))
    {
        if members[id].role != Role::Reads
            && let Some(read) = read_behind(graph, *input).filter(|read| !inside.contains(read))
        {
            held.insert(handles.behind_identities(graph, graph.node(read).inputs()[0]));
        }
    }
    let is_held = |id: &NodeId| {
        let inputs = graph.node(*id).inputs().iter().zip(&members[id].places);
        let mut own = inputs.filter(|(_, place)| **place == Place::Handle);
        own.any(|(input, _)| held.contains(&handles.behind_identities(graph, *input)))
    };
    changing.into_iter().filter(is_held).collect()
}

/// The ReadVariableOp whose value a tensor is, perhaps with another shape.
fn read_behind(graph: &Graph, mut tensor: Output) -> Option<NodeId> {
    loop {
        let node = graph.node(tensor.node);
        if node.op() == READ {
            return Some(tensor.node);
        }
        View::find(node.op(), node.dtype("T"))?;
        tensor = *node.inputs().first()?;
    }
}
