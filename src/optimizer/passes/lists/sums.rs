//! Sums of gradients over dimensions that might have been broadcast.
//!
//! TensorFlow's gradient of an op that broadcasts sums over the dimensions that
//! `BroadcastGradientArgs` finds, and reshapes the sum to the input's shape. If the input already
//! had the result's shape, both leave the gradient unchanged.

use super::{Shapes, extents};
use crate::optimizer::graph::{Graph, NodeId, Output};
use crate::optimizer::passes::cleanup;
use crate::optimizer::shape::{Dim, Shape};

/// Whether a `Sum` sums over no axis.
pub fn keeps_all(shapes: &Shapes<'_>, id: NodeId) -> bool {
    let node = shapes.graph.node(id);
    let [_, axes] = node.inputs() else { return false };
    let args = shapes.graph.node(axes.node);
    if node.op() != "Sum" || args.op() != "BroadcastGradientArgs" {
        return false;
    }
    let [a, b] = args.inputs() else { return false };
    let (Some(a), Some(b)) = (extents::of(shapes, *a), extents::of(shapes, *b)) else {
        return false;
    };
    let (own, other) = if axes.port == 0 { (a, b) } else { (b, a) };
    covers(&own, &other)
}

/// Whether `own`, broadcast with the other shape, certainly stays the same.
fn covers(own: &Shape, other: &Shape) -> bool {
    other.len() <= own.len()
        && own.iter().rev().zip(other.iter().rev()).all(|(a, b)| *b == Dim::Known(1) || a.same(*b))
}

/// The nodes that certainly return their input unchanged: such sums, and reshapes to the same
/// shape.
pub fn superfluous(shapes: &Shapes<'_>, order: &[NodeId]) -> Vec<NodeId> {
    let is_superfluous = |id: &NodeId| {
        let node = shapes.graph.node(*id);
        // A node that waits for such a node must not wait for a Switch in its place, which runs for
        // both branches.
        let waits = !node.controls().is_empty() || shapes.graph.waiters(*id).next().is_some();
        if !node.on_wgpu() || shapes.graph.is_preserved(*id) || waits {
            return false;
        }
        match node.op() {
            "Sum" => keeps_all(shapes, *id),
            // Known extents are left to `cleanup`.
            "Reshape" => {
                let shape = shapes.of(node.inputs()[0]);
                let changes = shape.is_none() || extents::of(shapes, node.inputs()[1]) != shape;
                !changes && shape.is_some_and(|s| s.iter().any(|d| d.known().is_none()))
            }
            _ => false,
        }
    };
    order.iter().copied().filter(is_superfluous).collect()
}

/// Rewires the readers of these nodes to the nodes' inputs. The nodes that computed the dimensions
/// are removed as well.
pub fn remove(graph: &mut Graph, superfluous: &[NodeId]) {
    let mut left: Vec<NodeId> = Vec::new();
    for id in superfluous {
        let source = graph.node(*id).inputs()[0];
        left.extend(graph.node(*id).inputs()[1..].iter().map(|input| input.node));
        graph.replace_readers(Output { node: *id, port: 0 }, source);
        graph.remove(*id);
    }
    while let Some(id) = left.pop() {
        if graph.contains(id) && cleanup::is_dead(graph, id) {
            left.extend(graph.used(id));
            graph.remove(id);
        }
    }
}
