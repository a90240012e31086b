//! Weights that a product reads in another form, as a transposed or a converted copy: the copy
//! waits for the product's other operand.
//!
//! Such a copy depends on nothing but a variable. So TensorFlow makes the copies of all layers when
//! a function begins, and those of the next steps of a loop, ten of them, while it is in one: a
//! second copy of the model or more. A wait costs nothing, since both nodes run on the device.

use rustc_hash::FxHashSet;

use crate::error::Result;
use crate::kernels::fused::elementwise;
use crate::optimizer::graph::{Graph, NodeId};

/// Ops that make a copy, or give a tensor another shape.
const COPIES: &[&str] = &["Cast", "ExpandDims", "Reshape", "Squeeze", "Transpose", elementwise::OP];
/// Ops whose result takes no memory of its own.
const SOURCES: &[&str] = &["Const", "ReadVariableOp"];
/// Bytes. Smaller copies do not matter.
const LARGE: usize = 1 << 16;

/// Runs the pass.
pub fn run(graph: &mut Graph) -> Result<()> {
    let Some(order) = graph.order() else { return Ok(()) };
    let mut places = vec![0; graph.capacity()];
    order.iter().enumerate().for_each(|(place, id)| places[id.index()] = place);
    let mut copies: FxHashSet<NodeId> = FxHashSet::default();
    let mut waits = Vec::new();
    for id in order.iter().copied() {
        if is_copy(graph, id, &copies) {
            copies.insert(id);
            continue;
        }
        // A `Merge` runs with one of its inputs alone.
        let node = graph.node(id);
        if !node.on_wgpu() || matches!(node.op(), "Merge" | "RefMerge") {
            continue;
        }
        let inputs = node.inputs().iter().map(|i| i.node);
        let (made, others): (Vec<_>, Vec<_>) = inputs.partition(|i| copies.contains(i));
        let others = others.into_iter().filter(|i| !is_source(graph, *i));
        let Some(other) = others.max_by_key(|i| places[i.index()]) else { continue };
        if graph.node(other).on_wgpu() {
            let firsts = made.into_iter().flat_map(|i| firsts(graph, i, &copies));
            waits.extend(firsts.map(|i| (i, other)));
        }
    }
    for (copy, other) in waits {
        if graph.frame(copy) == graph.frame(other) {
            graph.add_control(copy, other);
        }
    }
    Ok(())
}

fn is_source(graph: &Graph, id: NodeId) -> bool {
    SOURCES.contains(&graph.node(id).op())
}

/// Whether a node makes a copy of a variable for one reader, and waits for nothing else.
fn is_copy(graph: &Graph, id: NodeId, copies: &FxHashSet<NodeId>) -> bool {
    let node = graph.node(id);
    let reads = |i: &NodeId| copies.contains(i) || graph.node(*i).op() == "ReadVariableOp";
    COPIES.contains(&node.op())
        && node.on_wgpu()
        && node.controls().is_empty()
        && !graph.is_preserved(id)
        && graph.users(id).len() == 1
        && graph.waiters(id).next().is_none()
        && node.inputs().iter().any(|i| reads(&i.node))
        && node.inputs().iter().all(|i| reads(&i.node) || is_source(graph, i.node))
}

/// The large copies behind `id` that read variables themselves.
fn firsts(graph: &Graph, id: NodeId, copies: &FxHashSet<NodeId>) -> Vec<NodeId> {
    let (mut found, mut stack) = (Vec::new(), vec![id]);
    while let Some(id) = stack.pop() {
        let node = graph.node(id);
        let before: Vec<NodeId> =
            node.inputs().iter().map(|i| i.node).filter(|i| copies.contains(i)).collect();
        let info = &node.infos()[0];
        let large = info.len().zip(info.dtype).map(|(len, dtype)| len * dtype.size());
        if before.is_empty() && large.is_some_and(|bytes| bytes >= LARGE) {
            found.push(id);
        }
        stack.extend(before);
    }
    found
}
