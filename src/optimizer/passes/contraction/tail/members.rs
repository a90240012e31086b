//! The nodes that may be in a contraction's tail or beside it.

use std::collections::BTreeSet;

use rustc_hash::FxHashSet;

use super::{Root, norm};
use crate::dtype::DType;
use crate::kernels::expression::Call;
use crate::kernels::fused::cost;
use crate::kernels::scalar::row::Shapes;
use crate::optimizer::graph::{Graph, Node, NodeId, Output};
use crate::optimizer::scalars::{call_of, is_sum, must_broadcast};
use crate::optimizer::shape::{Dim, TensorInfo};

/// The largest number of nodes after a contraction that are considered.
const MAX_NODES: usize = 64;
/// The largest number of terms of a sum: more terms cost more than any epilogue may.
const MAX_TERMS: usize = 256;
/// The largest number of uses of a value within a tail. With more uses, some are certainly outside.
pub(super) const MAX_USES: usize = 4 * MAX_NODES;

/// Whether a tensor has one element for each column of a tensor with the shape of `other`.
fn is_row(info: &TensorInfo, other: &TensorInfo) -> bool {
    let rows = info.shape.as_deref().and_then(|s| s.split_last());
    info.broadcasts_to(other)
        && rows.is_some_and(|(_, lead)| lead.iter().all(|d| *d == Dim::Known(1)))
}

/// Elementwise nodes beside a tail that only the tail reads and that have its shape: the tail
/// computes them from their inputs. The same goes for cheap functions of the channels, such as the
/// slope and the offset of a batch normalization: a dispatch for a few elements takes longer than
/// computing them again. Such a node may wait only for nodes of the tail: gradients wait for the
/// gradient before them.
pub(super) fn sides(graph: &Graph, root: &Root, tail: &FxHashSet<NodeId>) -> FxHashSet<NodeId> {
    let device = graph.node(root.id).device();
    let mut sides = FxHashSet::default();
    let mut open: Vec<NodeId> = tail.iter().copied().collect();
    while let Some(reader) = open.pop() {
        let shape = graph.info(Output { node: reader, port: 0 });
        for input in graph.node(reader).inputs() {
            let (id, node) = (input.node, graph.node(input.node));
            let inside = |id: &NodeId| *id == root.id || tail.contains(id) || sides.contains(id);
            let known = inside(&id);
            let alone = || {
                graph.users(id).len() <= MAX_USES
                    && graph.users(id).iter().all(|u| tail.contains(u) || sides.contains(u))
            };
            if !known
                && sides.len() < MAX_NODES
                && node.device() == device
                && node.controls().iter().all(inside)
                && !graph.is_preserved(id)
                && row(node).is_some_and(|call| {
                    let info = graph.info(*input);
                    info.same_shape(shape) || cost::is_cheap(call) && is_row(info, shape)
                })
                && alone()
            {
                sides.insert(id);
                open.push(id);
            }
        }
    }
    sides
}

/// Whether a node reads an output of another one.
pub(super) fn reads(graph: &Graph, user: NodeId, used: NodeId) -> bool {
    graph.node(user).inputs().iter().any(|i| i.node == used)
}

/// Ops that only change a tensor's shape.
pub(super) fn reshapes(node: &Node) -> bool {
    matches!(node.op(), "ExpandDims" | "Reshape" | "Squeeze")
}

/// The nodes that may be in the tail, in topological order.
pub(super) fn followers(graph: &Graph, root: &Root, positions: &[usize]) -> Vec<NodeId> {
    let place = |id: NodeId| {
        positions.get(id.index()).copied().filter(|p| *p != usize::MAX).map(|p| (p, id))
    };
    let mut ahead: BTreeSet<(usize, NodeId)> =
        graph.readers(root.output()).filter_map(|(id, _)| place(id)).collect();
    let mut found = Vec::new();
    while let Some((_, id)) = ahead.pop_first() {
        let node = graph.node(id);
        let same_device = node.device() == graph.node(root.id).device();
        let known = reshapes(node)
            || matches!(node.op(), "BiasAdd" | "Cast")
            || (node.op() == "AddN" && node.inputs().len() <= MAX_TERMS)
            || norm::is_inference(node)
            || row(node).is_some();
        if !same_device || !known || graph.is_preserved(id) || found.len() == MAX_NODES {
            continue;
        }
        found.push(id);
        // A value with many readers can only be the end of a tail.
        if graph.users(id).len() > MAX_USES {
            continue;
        }
        ahead.extend(graph.readers(Output { node: id, port: 0 }).filter_map(|(id, _)| place(id)));
    }
    found
}

/// The call of an elementwise node whose shapes broadcast.
pub(super) fn row(node: &Node) -> Option<Call> {
    let call = call_of(node).filter(|_| !is_sum(node))?;
    let Call::Row(row, _) = call else { return None };
    let broadcasts = match row.shapes {
        Shapes::Broadcast => true,
        Shapes::BroadcastOr(_) => must_broadcast(node),
        Shapes::Same => row.inputs.len() == 1,
        _ => false,
    };
    let mut types = call.inputs();
    types.push(call.output());
    (broadcasts && types.iter().all(|t| t.is_float() || *t == DType::Bool)).then_some(call)
}
