//! The nodes that may be in a contraction's tail or beside it.

use std::collections::BTreeSet;

use rustc_hash::FxHashSet;

use super::{Root, norm};
use crate::kernels::expression::Call;
use crate::kernels::scalar::row::Shapes;
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::meaning::{Engine, Meaning, Scalar};
use crate::optimizer::shape::{Dim, TensorInfo};

/// The largest number of nodes after a contraction that are considered.
const MAX_NODES: usize = 64;
/// The largest number of terms of a sum: more terms cost more than any epilogue may.
const MAX_TERMS: u32 = 256;
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
                && graph.ask("contraction", [id, reader], graph.may_join(id, root.id)).is_some()
                && node.controls().iter().all(inside)
                && row(graph, id).is_some_and(|scalar| {
                    let info = graph.info(*input);
                    info.same_shape(shape) || scalar.is_cheap() && is_row(info, shape)
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

/// The nodes that may be in the tail, in topological order.
pub(super) fn followers(graph: &Graph, root: &Root) -> Vec<NodeId> {
    let place = |id: NodeId| graph.place(id).map(|place| (place, id));
    let mut ahead: BTreeSet<(u64, NodeId)> =
        graph.readers(root.output()).filter_map(|(id, _)| place(id)).collect();
    let mut found = Vec::new();
    while let Some((_, id)) = ahead.pop_first() {
        let node = graph.node(id);
        let known = match Meaning::of(node) {
            Meaning::Bias(_) | Meaning::View => true,
            Meaning::Scalar(scalar) if scalar.is_sum => scalar.calls < MAX_TERMS,
            Meaning::Scalar(scalar) => {
                matches!(scalar.call, Call::Cast(..)) || row(graph, id).is_some()
            }
            _ => norm::is_inference(node),
        };
        let legal = || graph.ask("contraction", [id, root.id], graph.may_join(id, root.id));
        if !known || legal().is_none() || found.len() == MAX_NODES {
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

/// The function of an elementwise node that broadcasts. Gradients of activations, whose inputs must
/// have one shape, are left to the passes that compute them with other gradients.
pub(super) fn row(graph: &Graph, id: NodeId) -> Option<Scalar> {
    let node = graph.node(id);
    let scalar =
        Meaning::of(node).scalar().filter(|s| !s.is_sum && matches!(s.call, Call::Row(..)))?;
    let broadcasts = scalar.shapes == Shapes::Broadcast || node.inputs().len() == 1;
    (broadcasts && scalar.suits(Engine::Epilogue).is_ok()).then_some(scalar)
}
